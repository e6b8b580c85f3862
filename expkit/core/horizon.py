"""How long a run is, and lengths that are written in terms of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from expkit.core.errors import ConfigError, Problem

Duration = int | float | str | None
"""Steps (100), epochs (``"2ep"``), or a share of the whole run (0.1); None is 0."""

_PATTERN = re.compile(r"(\d+)\s*(ep)?")


def is_duration(value: object) -> bool:
    """Whether a value is a `Duration`; a share is at least 0 and below 1."""
    if isinstance(value, float):
        return 0 <= value < 1
    return not isinstance(value, bool) and _PATTERN.fullmatch(_text(value)) is not None


def is_lasting(value: object) -> bool:
    """Whether a value is a `Duration` above 0."""
    if isinstance(value, float):
        return 0 < value < 1
    match = None if isinstance(value, bool) else _PATTERN.fullmatch(_text(value))
    return match is not None and int(match[1]) > 0


@dataclass(frozen=True)
class Horizon:
    """The length of a run, as far as it is known.

    Attributes:
        total_steps: steps of the whole run.
        steps_per_epoch: steps of an epoch.
    """

    total_steps: int | None
    steps_per_epoch: int | None

    def total(self, key: str) -> int:
        """Steps of the whole run.

        Raises:
            ConfigError: they are not known.
        """
        if self.total_steps is None:
            message = "needs the number of steps of the run, which is not known"
            allowed = "set trainer.max_steps, or trainer.n_epochs for data with a length"
            raise ConfigError([Problem(key, f"{message}; {allowed}", "trainer.max_steps=10000")])
        return self.total_steps

    def steps(self, duration: Duration, key: str) -> int:
        """A valid duration in steps.

        Raises:
            ConfigError: it is written in terms of a length that is not known.
        """
        if isinstance(duration, float):
            return round(duration * self.total(key)) if duration else 0
        text = _text(duration)
        count = int(text.removesuffix("ep"))
        if not text.endswith("ep"):
            return count
        if self.steps_per_epoch is None:
            message = f"is {duration!r}, but the data has no length; give it in steps"
            raise ConfigError([Problem(key, message, f"{key}=1000")])
        return count * self.steps_per_epoch


def _text(value: object) -> str:
    return "0" if value is None else str(value).strip()
