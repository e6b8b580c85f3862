"""The contract of learning-rate schedules: a factor of each group's own base rate, by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from expkit.core.driver import Driver
from expkit.core.errors import ConfigError, Problem


class Schedule(ABC):
    """Gives the factor of the base learning rate of each parameter group at each step.

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

    def factor(self, step: int) -> float:  # noqa: ARG002 - the same at each
        """1 at each step."""
        return 1.0

    def observe(self, value: float, larger_is_better: bool) -> None:
        """Does not look."""

    def state(self) -> dict[str, Any]:
        """Has none."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Has none."""


def first_rates(driver: Driver) -> dict[str, float]:
    """Rate of each optimizer's first group; before the first update that is its base rate."""
    rates = driver.learning_rates()
    names = driver.optimizer_names
    if len(names) == 1:
        return {names[0]: next(iter(rates.values()))}
    return {
        name: next(rate for key, rate in rates.items() if f"{key}/".startswith(f"lr/{name}/"))
        for name in names
    }


class ScheduleSet:
    """The schedules of all optimizers; one schedule may serve several of them.

    Args:
        schedule: one for all, one for each by name, or None for constant rates.
        base_rates: see `first_rates`.

    Raises:
        ConfigError: a mapping whose names are not those of the optimizers.
    """

    def __init__(
        self, schedule: Schedule | Mapping[str, Schedule] | None, base_rates: Mapping[str, float]
    ) -> None:
        if not isinstance(schedule, Mapping):
            schedule = dict.fromkeys(base_rates, schedule or ConstantRate())
        elif set(schedule) != set(base_rates):
            message = (
                f"has {sorted(schedule)}; allowed: one schedule, or one for each optimizer: "
                f"{sorted(base_rates)}"
            )
            raise ConfigError([Problem("schedule", message)])
        self._by_optimizer = {name: schedule[name] for name in base_rates}
        self._distinct: dict[str, Schedule] = {}  # each by the first optimizer that it serves
        for name, each in self._by_optimizer.items():
            if not any(each is known for known in self._distinct.values()):
                self._distinct[name] = each
        self._in_order = tuple(self._by_optimizer.values())
        self._base_rates = dict(base_rates)
        self._total_steps: int | None = None

    def prepare(self, total_steps: int | None, steps_per_epoch: int | None) -> None:
        """Tell each schedule the horizon, see `Schedule.prepare`."""
        self._total_steps = total_steps
        for name, schedule in self._distinct.items():
            schedule.prepare(total_steps, steps_per_epoch, self._base_rates[name])

    @property
    def needs_monitor(self) -> str | None:
        """Name of one that follows the monitored value, or None; known when they are prepared."""
        return next((type(each).__name__ for each in self._in_order if each.needs_monitor), None)

    def factors(self, update: int) -> list[float]:
        """One factor per optimizer for update number ``update``, from 1."""
        return [schedule.factor(update) for schedule in self._in_order]

    def observe(self, value: float, larger_is_better: bool) -> None:
        """Tell each schedule once, see `Schedule.observe`."""
        for schedule in self._distinct.values():
            schedule.observe(value, larger_is_better)

    def state(self) -> dict[str, Any]:
        """As JSON values: what the schedules keep, and what their rates come from."""
        return {
            "total_steps": self._total_steps,
            "base_rates": self._base_rates,
            "types": {
                name: type(schedule).__name__ for name, schedule in self._by_optimizer.items()
            },
            "states": {name: schedule.state() for name, schedule in self._by_optimizer.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> list[str]:
        """Take back what ``state`` gave; where the config has changed it rules.

        Returns:
            What has changed, for people.
        """
        own = self.state()
        for name, schedule in self._by_optimizer.items():
            if state["types"].get(name) == own["types"][name]:
                schedule.load_state(state["states"][name])
        return [
            f"{what} {own[key]} (was {state[key]})"
            for key, what in (
                ("base_rates", "learning rates"),
                ("types", "schedules"),
                ("total_steps", "length in steps"),
            )
            if own[key] != state[key]
        ]
