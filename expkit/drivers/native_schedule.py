"""What the adapters to the frameworks' own schedulers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from expkit.core.errors import ConfigError, Problem
from expkit.core.naming import name_of
from expkit.core.schedule import Schedule


class NativeScheduleBase(Schedule):
    """Reads a framework's scheduler as a factor of the base rate.

    The scheduler drives a stand-in, so the real optimizers keep their own base rates. Update 1 has
    its initial rate, and it moves on before each later update: the usual order of optimizer and
    scheduler.

    Args:
        factory: the scheduler's class or a partial of it.
    """

    def __init__(self, factory: Callable[..., Any]) -> None:
        given: object = factory
        if not callable(given):
            message = f"is {given!r}; allowed: a scheduler's class, or a partial of it"
            hint = "+schedule.factory._partial_=true"
            raise ConfigError([Problem("schedule.factory", message, hint)])
        self.factory = factory
        self._base_lr = 1.0
        self._step = 1
        self._made: dict[str, Any] = {}

    def prepare(self, total_steps: int | None, steps_per_epoch: int | None, base_lr: float) -> None:  # noqa: ARG002
        """See `Schedule.prepare`."""
        self._base_lr = base_lr
        self._step = 1
        try:
            self._build(base_lr)
        except (TypeError, ValueError, AssertionError) as error:
            message = f"{name_of(self.factory)} refuses its options: {error}"
            raise ConfigError([Problem("schedule.factory", message)]) from error
        self.needs_monitor = self._plateau_mode() is not None
        self._made = deepcopy(self._read())

    def factor(self, step: int) -> float:
        """See `Schedule.factor`; steps may be left out, but not come again."""
        if step < self._step:
            raise ValueError(f"the scheduler is at step {self._step} and cannot go back to {step}")
        while self._step < step:
            if not self.needs_monitor:
                self._advance()
            self._step += 1
        return self._rate() / self._base_lr

    def observe(self, value: float, larger_is_better: bool) -> None:
        """See `Schedule.observe`.

        Raises:
            ConfigError: the scheduler waits for larger values where smaller ones are better.
        """
        mode = self._plateau_mode()
        if mode is None:
            return
        wanted = "max" if larger_is_better else "min"
        if mode != wanted:
            better = "larger" if larger_is_better else "smaller"
            message = f"is {mode}, but {better} is better of the monitored value"
            hint = f"schedule.factory.mode={wanted}"
            raise ConfigError([Problem("schedule.factory.mode", message, hint)])
        self._judge(value)

    def state(self) -> dict[str, Any]:
        """The step, the rate, and what has changed in the scheduler since it was made."""
        return {
            "step": self._step,
            "base_lr": self._base_lr,
            "lr": self._rate(),
            "scheduler": _changes(self._read(), self._made),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See `Schedule.load_state`; options and base rate stay those of the present config."""
        self._step = int(state["step"])
        lr, base_lr = float(state["lr"]), float(state["base_lr"])
        if base_lr != self._base_lr:
            lr *= self._base_lr / base_lr
        self._write(_changed(self._made, state["scheduler"]), lr)

    @abstractmethod
    def _build(self, base_lr: float) -> None:
        """Make the scheduler."""

    @abstractmethod
    def _plateau_mode(self) -> str | None:
        """``min`` or ``max`` of a scheduler that follows a monitored value; None for others."""

    @abstractmethod
    def _rate(self) -> float:
        """The present rate."""

    @abstractmethod
    def _advance(self) -> None:
        """One step."""

    @abstractmethod
    def _judge(self, value: float) -> None:
        """Give a monitored value to the scheduler."""

    @abstractmethod
    def _read(self) -> dict[str, Any]:
        """The scheduler's state."""

    @abstractmethod
    def _write(self, state: dict[str, Any], lr: float) -> None:
        """Take back the scheduler's state and its rate."""


def _changes(now: Any, made: Any) -> Any:
    """The parts of nested dicts and lists that differ; functions and options never do."""
    if isinstance(now, list) and isinstance(made, list) and len(now) == len(made):
        now, made = dict(enumerate(now)), dict(enumerate(made))
    if isinstance(now, dict) and isinstance(made, dict):
        return {
            str(key): _changes(value, made.get(key))
            for key, value in now.items()
            if key not in made or value != made[key]
        }
    return now


def _changed(made: Any, changes: Any) -> Any:
    """The inverse of `_changes`."""
    if isinstance(made, list) and isinstance(changes, Mapping):
        return list(_changed(dict(enumerate(made)), changes).values())
    if isinstance(made, dict) and isinstance(changes, Mapping):
        names = {str(key): key for key in made}
        moved = {names.get(key, key): value for key, value in changes.items()}
        return made | {key: _changed(made.get(key), value) for key, value in moved.items()}
    return changes
