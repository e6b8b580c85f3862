"""Learning-rate schedules: the factor of the base rate as a function of the optimizer step.

All begin with an optional linear warm-up. A schedule is evaluated at t = step, the first update at
t = 1: `Linear` over T steps gives update t the rate 1 - t / T, and the last one 0. After the last
step of the run a schedule stays where it is.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from expkit.core.errors import ConfigError, Problem
from expkit.core.horizon import Duration, Horizon, is_duration, is_lasting
from expkit.core.schedule import Schedule

logger = logging.getLogger(__name__)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _allow(holds: Callable[[Any], bool], allowed: str) -> dict[str, Any]:
    """What the values of a field must be."""
    return {"holds": holds, "allowed": allowed}


_STEPS = "steps such as 100, epochs such as 2ep, or a share of the run such as 0.1"
_SHARE = "a number from 0 to 1"


@dataclass(kw_only=True)
class WarmedSchedule(Schedule):
    """A warm-up, then whatever a subclass does.

    Attributes:
        warmup: how long the rate rises to the base rate: steps, ``"Nep"`` or a share of the run.
        start: share of the base rate that the warm-up starts from.
    """

    warmup: Duration = field(default=0, metadata=_allow(is_duration, _STEPS))
    start: float = field(default=0.0, metadata=_allow(_is_share, _SHARE))
    _warmup_steps: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = []
        for option in fields(self):
            value = getattr(self, option.name, None)
            if option.metadata and not option.metadata["holds"](value):
                key = f"schedule.{option.name}"
                message = f"is {value!r}; allowed: {option.metadata['allowed']}"
                problems.append(Problem(key, message, f"{key}={option.default}"))
        if problems:
            raise ConfigError(problems)

    def prepare(self, total_steps: int | None, steps_per_epoch: int | None, base_lr: float) -> None:  # noqa: ARG002
        """See `Schedule.prepare`."""
        horizon = Horizon(total_steps, steps_per_epoch)
        steps = horizon.steps(self.warmup, "schedule.warmup")
        if total_steps is not None and steps > total_steps:
            logger.warning("the warm-up has %d steps, the run only %d", steps, total_steps)
        self._warmup_steps = steps
        self._plan(horizon)

    def factor(self, step: int) -> float:
        """See `Schedule.factor`."""
        if step < self._warmup_steps:
            return self.start + (1.0 - self.start) * step / self._warmup_steps
        return self._decay(step - self._warmup_steps)

    @abstractmethod
    def _plan(self, horizon: Horizon) -> None:
        """Take what is needed of the horizon."""

    @abstractmethod
    def _decay(self, step: int) -> float:
        """The factor ``step`` steps after the end of the warm-up."""


@dataclass(kw_only=True)
class PureSchedule(WarmedSchedule):
    """A function of the step alone."""

    def observe(self, value: float, larger_is_better: bool) -> None:
        """Does not look."""

    def state(self) -> dict[str, Any]:
        """Has none."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Has none."""


@dataclass(kw_only=True)
class Annealing(PureSchedule):
    """From the base rate at the end of the warm-up to ``end`` at the end of the run.

    Attributes:
        end: share of the base rate at the end.
    """

    end: float = field(default=0.0, metadata=_allow(_is_share, _SHARE))
    _steps: int = field(init=False, repr=False, compare=False)

    def _plan(self, horizon: Horizon) -> None:
        self._steps = horizon.total("schedule") - self._warmup_steps

    def _decay(self, step: int) -> float:
        done = step / self._steps if step < self._steps else float(step > 0)
        return self.end + (1.0 - self.end) * self._shape(done)

    @abstractmethod
    def _shape(self, done: float) -> float:
        """Falls from 1 at ``done`` = 0 to 0 at ``done`` = 1."""


@dataclass(kw_only=True)
class Constant(PureSchedule):
    """The base rate, after the warm-up."""

    def _plan(self, horizon: Horizon) -> None:
        pass

    def _decay(self, step: int) -> float:  # noqa: ARG002
        return 1.0


@dataclass(kw_only=True)
class Linear(Annealing):
    """A straight line: 1 - done."""

    def _shape(self, done: float) -> float:
        return 1.0 - done


@dataclass(kw_only=True)
class Cosine(Annealing):
    """Half a cosine: (1 + cos(pi * done)) / 2 (Loshchilov and Hutter 2017, without restarts)."""

    def _shape(self, done: float) -> float:
        return _half_cosine(done)


@dataclass(kw_only=True)
class OneCycle(Annealing):
    """In a line up to the base rate, which is the greatest, and down in half a cosine.

    After the cycle of Smith and Topin (2018): starts low, and ends far lower.
    """

    warmup: Duration = field(default=0.3, metadata=_allow(is_lasting, f"{_STEPS}, above 0"))
    start: float = field(default=0.04, metadata=_allow(_is_share, _SHARE))
    end: float = field(default=0.000004, metadata=_allow(_is_share, _SHARE))

    def _shape(self, done: float) -> float:
        return _half_cosine(done)


@dataclass(kw_only=True)
class Polynomial(Annealing):
    """A power of what is left: (1 - done) ** power.

    Attributes:
        power: 1 is a straight line, 2 a parabola.
    """

    power: float = field(default=2.0, metadata=_allow(_is_positive, "a number above 0"))

    def _shape(self, done: float) -> float:
        return float((1.0 - done) ** self.power)


@dataclass(kw_only=True)
class Step(PureSchedule):
    """A constant factor at regular intervals after the warm-up: gamma ** (t // every).

    Attributes:
        every: length of an interval: steps, ``"Nep"`` or a share of the run.
        gamma: what the rate is multiplied with after each.
    """

    every: Duration = field(default="10ep", metadata=_allow(is_lasting, f"{_STEPS}, above 0"))
    gamma: float = field(default=0.1, metadata=_allow(_is_positive, "a number above 0"))
    _every_steps: int = field(init=False, repr=False, compare=False)

    def _plan(self, horizon: Horizon) -> None:
        self._every_steps = max(horizon.steps(self.every, "schedule.every"), 1)

    def _decay(self, step: int) -> float:
        return float(self.gamma ** (step // self._every_steps))


@dataclass(kw_only=True)
class InverseSquareRoot(PureSchedule):
    """sqrt(warmup / t) after a warm-up of that many steps (Vaswani et al. 2017)."""

    warmup: Duration = field(default=1000, metadata=_allow(is_duration, _STEPS))

    def _plan(self, horizon: Horizon) -> None:
        pass

    def _decay(self, step: int) -> float:
        peak = max(self._warmup_steps, 1)
        return math.sqrt(peak / max(self._warmup_steps + step, peak))


@dataclass(kw_only=True)
class Plateau(WarmedSchedule):
    """Multiplies the rate with ``gamma`` where the monitored value has stopped to improve.

    Attributes:
        gamma: what the rate is multiplied with.
        patience: evaluations in a row without an improvement after which that happens.
        min_delta: how much better than the best so far counts as an improvement.
        cooldown: evaluations after a reduction that are not counted.
        end: share of the base rate below which the rate does not go.
    """

    needs_monitor = True

    gamma: float = field(
        default=0.1,
        metadata=_allow(lambda x: _is_positive(x) and x < 1, "a number between 0 and 1"),
    )
    patience: int = field(
        default=10, metadata=_allow(lambda x: _is_count(x) and x > 0, "a whole number, at least 1")
    )
    min_delta: float = field(
        default=0.0, metadata=_allow(lambda x: _is_number(x) and x >= 0, "a number, at least 0")
    )
    cooldown: int = field(
        default=0, metadata=_allow(lambda x: _is_count(x) and x >= 0, "a whole number, at least 0")
    )
    end: float = field(default=0.0, metadata=_allow(_is_share, _SHARE))
    _scale: float = field(default=1.0, init=False, repr=False, compare=False)
    _best: float | None = field(default=None, init=False, repr=False, compare=False)
    _waited: int = field(default=0, init=False, repr=False, compare=False)
    _resting: int = field(default=0, init=False, repr=False, compare=False)

    def observe(self, value: float, larger_is_better: bool) -> None:
        """See `Schedule.observe`; NaN is no improvement."""
        gain = math.inf
        if self._best is not None:
            gain = value - self._best if larger_is_better else self._best - value
        if gain > self.min_delta and not math.isnan(value):
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        if self._resting:
            self._resting -= 1
            self._waited = 0
        if self._waited >= self.patience:
            self._scale = max(self._scale * self.gamma, self.end)
            self._waited, self._resting = 0, self.cooldown
            logger.info("the monitored value has not improved: rate * %g from now on", self._scale)

    def state(self) -> dict[str, Any]:
        """The best value, the reduction so far and what was waited."""
        return {
            "scale": self._scale,
            "best": self._best,
            "waited": self._waited,
            "resting": self._resting,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See `Schedule.load_state`."""
        self._scale = float(state["scale"])
        self._best = None if state["best"] is None else float(state["best"])
        self._waited = int(state["waited"])
        self._resting = int(state["resting"])

    def _plan(self, horizon: Horizon) -> None:
        pass

    def _decay(self, step: int) -> float:  # noqa: ARG002
        return self._scale


def _half_cosine(done: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * done))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
