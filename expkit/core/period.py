"""How often: every N steps, every N epochs, never, or as a function says."""

from __future__ import annotations

import re
from collections.abc import Callable

from expkit.core.errors import ConfigError, Problem
from expkit.core.progress import Progress

PeriodLike = int | str | None | Callable[[Progress], bool]
"""``N`` (steps), ``"Nep"`` (epochs), None (never), or a function of the progress (Python API)."""

_PATTERN = re.compile(r"(\d+)\s*(ep)?")


class Period:
    """Answers whether something is due after a step.

    Args:
        value: ``N`` steps, ``"Nep"`` epochs, None for never, or a function asked after each step.
        key: the config key, for errors.

    Raises:
        ConfigError: for anything else, and for 0 and below.
    """

    def __init__(self, value: PeriodLike, key: str = "period") -> None:
        self._steps = self._epochs = 0
        self._asked: Callable[[Progress], bool] | None = None
        self.is_never = value is None
        if value is None:
            return
        if callable(value):
            self._asked = value
            return
        match = None if isinstance(value, bool) else _PATTERN.fullmatch(str(value).strip())
        count = int(match[1]) if match else 0
        if count < 1:
            allowed = (
                'allowed: a number of steps such as 100, epochs such as "1ep", or null for never'
            )
            raise ConfigError([Problem(key, f"is {value!r}; {allowed}", f"{key}=1ep")])
        if match and match[2]:
            self._epochs = count
        else:
            self._steps = count

    def due(self, progress: Progress) -> bool:
        """Whether it is due, asked once the step is counted and before its epoch is."""
        if self._steps:
            return progress.step % self._steps == 0
        if self._epochs:
            return progress.epoch_ended and (progress.epoch + 1) % self._epochs == 0
        return self._asked is not None and bool(self._asked(progress))
