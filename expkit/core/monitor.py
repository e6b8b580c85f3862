"""The metric that decides which of a run's states is best."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from expkit.core.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Monitor:
    """A metric by its exact name, and which way is up.

    Scores are turned so that larger is always better; whoever compares need not know the direction.

    Attributes:
        name: the metric as an evaluation names it, such as ``accuracy`` or ``dev/accuracy``.
        larger_is_better: False where the smaller value wins.
    """

    name: str
    larger_is_better: bool = True

    @classmethod
    def parse(cls, text: str, key: str = "monitor") -> Monitor:
        """Read ``accuracy`` (larger is better) or ``-loss`` (smaller is better).

        Args:
            text: the name of a metric, with a leading minus where smaller is better.
            key: the config key, for errors.

        Raises:
            ConfigError: no name, or more than one leading minus.
        """
        name = text.removeprefix("-") if isinstance(text, str) else ""
        if not name.strip() or name.startswith("-"):
            message = (
                f"{text!r} names no metric; allowed: the name of a metric, with one leading minus "
                "where smaller is better"
            )
            raise ConfigError([Problem(key, message, f"{key}=-loss")])
        return cls(name, larger_is_better=not text.startswith("-"))

    def __str__(self) -> str:
        return self.name if self.larger_is_better else f"-{self.name}"

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """The monitored value turned so that larger is better.

        None where it is absent, NaN or infinite: such a value can be neither ranked nor beaten.
        """
        value = float(metrics.get(self.name, math.nan))
        if not math.isfinite(value):
            return None
        return value if self.larger_is_better else -value

    def better(self, new: float | None, old: float | None, min_delta: float = 0.0) -> bool:
        """Whether score ``new`` beats ``old`` by more than ``min_delta``.

        None stands for "no value": it beats nothing, and any value beats it.
        """
        if new is None:
            return False
        return old is None or new > old + min_delta

    def check(self, names: Iterable[str], key: str = "monitor") -> None:
        """Make sure that an evaluation which gives ``names`` gives the monitored metric.

        Args:
            names: the names of all metrics of an evaluation.
            key: the config key, for errors.

        Raises:
            ConfigError: it does not; lists the names and proposes the nearest.
        """
        known = sorted(names)
        if self.name in known:
            return
        given = ", ".join(known) if known else "no metric at all"
        nearest = difflib.get_close_matches(self.name, known, n=1, cutoff=0.5)
        sign = "" if self.larger_is_better else "-"
        hint = f"{key}={sign}{nearest[0]}" if nearest else ""
        message = f"{self.name!r} is not a metric of the evaluation, which gives: {given}"
        raise ConfigError([Problem(key, message, hint)])
