"""The contract of learning-rate schedules: a factor of each group's own base rate, by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from expkit.core.errors import ConfigError, Problem


class Schedule(ABC):
    """Gives the factor that multiplies the base learning rate of each parameter group at each optimizer step.

    Attributes:
        needs_monitor: True where ``observe`` wants the monitored value of each evaluation.
    """

    needs_monitor: bool = False

    @abstractmethod
    def prepare(self, total_steps: int | None, steps_per_epoch: int | None, base_lr: float) -> None:
        """Tell the horizon before the first step.

        Args:
            total_steps: optimizer steps in the whole run; None where nothing but time ends it.
            steps_per_epoch: optimizer steps in an epoch; None for data without length.
            base_lr: the first group's own rate, for schedules that are written with absolute rates.

        Raises:
            ConfigError: where the schedule needs a horizon and there is none.
        """

    @abstractmethod
    def factor(self, step: int) -> float:
        """The factor for update number ``step``; the first update is step 1."""

    @abstractmethod
    def observe(self, value: float, larger_is_better: bool) -> None:
        """Take the monitored value of an evaluation (plateau schedules); others do nothing."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What must survive a restart, as JSON values; empty for pure functions of the step."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""


class ConstantRate(Schedule):
    """Each group keeps its base rate; what a trainer uses where no schedule is given."""

    def prepare(self, total_steps: int | None, steps_per_epoch: int | None, base_lr: float) -> None:
        """Needs no horizon."""

    def factor(self, step: int) -> float:
        """1 at each step."""
        return 1.0

    def observe(self, value: float, larger_is_better: bool) -> None:
        """Does not look."""

    def state(self) -> dict[str, Any]:
        """Has none."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Has none."""


def one_for_each(
    schedule: Schedule | Mapping[str, Schedule] | None, optimizers: Sequence[str]
) -> list[Schedule]:
    """The schedule of each optimizer, in the order of their names.

    Args:
        schedule: one for all, one for each by name, or None for constant rates.
        optimizers: names of the optimizers.

    Raises:
        ConfigError: a mapping whose names are not those of the optimizers.
    """
    if not isinstance(schedule, Mapping):
        return [schedule or ConstantRate()] * len(optimizers)
    if set(schedule) != set(optimizers):
        message = f"has {sorted(schedule)}; allowed: one schedule, or one for each optimizer: {sorted(optimizers)}"
        raise ConfigError([Problem("schedule", message)])
    return [schedule[name] for name in optimizers]
