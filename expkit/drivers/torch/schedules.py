"""The schedulers of ``torch.optim.lr_scheduler`` as schedules."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from expkit.core.errors import ConfigError, Problem
from expkit.drivers.native_schedule import NativeScheduleBase


class NativeSchedule(NativeScheduleBase):
    """A scheduler of torch, see `NativeScheduleBase`; ``factory`` is called with an optimizer."""

    def _build(self, base_lr: float) -> None:
        self._optimizer = torch.optim.SGD([torch.zeros(1)], lr=base_lr)
        scheduler: Any = self.factory(self._optimizer)
        if not isinstance(scheduler, LRScheduler):
            kind = f"{type(scheduler).__module__}.{type(scheduler).__qualname__}"
            message = f"gives {kind}; allowed: a scheduler of torch.optim.lr_scheduler"
            raise ConfigError([Problem("schedule.factory", message)])
        if self._group["momentum"] != 0:
            message = "changes the momentum too, which a schedule of the learning rate cannot"
            hint = "+schedule.factory.cycle_momentum=false"
            raise ConfigError([Problem("schedule.factory", message, hint)])
        self._scheduler: Any = scheduler

    @property
    def _group(self) -> dict[str, Any]:
        return self._optimizer.param_groups[0]

    def _plateau_mode(self) -> str | None:
        scheduler = self._scheduler
        return scheduler.mode if isinstance(scheduler, ReduceLROnPlateau) else None

    def _rate(self) -> float:
        return float(self._group["lr"])

    def _advance(self) -> None:
        self._optimizer.step()  # schedulers warn when the optimizer has not moved before them
        self._scheduler.step()

    def _judge(self, value: float) -> None:
        self._scheduler.step(value)

    def _read(self) -> dict[str, Any]:
        return self._scheduler.state_dict()

    def _write(self, state: dict[str, Any], lr: float) -> None:
        self._scheduler.load_state_dict(state)
        self._group["lr"] = lr
