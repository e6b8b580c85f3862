"""The schedulers of ``paddle.optimizer.lr`` as schedules."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from paddle.optimizer.lr import LRScheduler, ReduceOnPlateau

from expkit.core.errors import ConfigError, Problem
from expkit.drivers.native_schedule import NativeScheduleBase


class NativeSchedule(NativeScheduleBase):
    """A scheduler of Paddle, see `NativeScheduleBase`.

    ``factory`` is called with the base rate as ``learning_rate``, where it takes one and does not
    have it yet.
    """

    def _build(self, base_lr: float) -> None:
        given = getattr(self.factory, "keywords", {})
        takes = inspect.signature(self.factory).parameters
        wanted = "learning_rate" in takes and "learning_rate" not in given
        scheduler: Any = self.factory(**({"learning_rate": base_lr} if wanted else {}))
        if not isinstance(scheduler, LRScheduler):
            kind = f"{type(scheduler).__module__}.{type(scheduler).__qualname__}"
            message = f"gives {kind}; allowed: a scheduler of paddle.optimizer.lr"
            raise ConfigError([Problem("schedule.factory", message)])
        self._scheduler: Any = scheduler

    def _plateau_mode(self) -> str | None:
        scheduler = self._scheduler
        return scheduler.mode if isinstance(scheduler, ReduceOnPlateau) else None

    def _rate(self) -> float:
        return float(self._scheduler())

    def _advance(self) -> None:
        self._scheduler.step()

    def _judge(self, value: float) -> None:
        self._scheduler.step(value)

    def _read(self) -> dict[str, Any]:
        return dict(self._scheduler.state_dict())

    def _write(self, state: dict[str, Any], lr: float) -> None:
        with warnings.catch_warnings():
            # LinearWarmup around another scheduler warns about the state of the inner one.
            warnings.filterwarnings("ignore", message="There are some unused values")
            self._scheduler.set_state_dict(state)
        self._scheduler.last_lr = lr
