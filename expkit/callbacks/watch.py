"""The best value of one metric, as a callback follows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from expkit.core.errors import ConfigError, Problem
from expkit.core.events import Context
from expkit.core.monitor import Monitor

log = logging.getLogger(__name__)


class MonitorWatch:
    """Tells at each evaluation whether a metric has become better; survives a restart.

    Args:
        monitor: ``accuracy`` or ``-loss``; None = the run's own monitor.
        callback: the callback's name in the config, for errors.
    """

    def __init__(self, monitor: str | None, callback: str) -> None:
        self._key = f"callbacks.{callback}.monitor"
        self._monitor = None if monitor is None else Monitor.parse(monitor, self._key)
        self._best: float | None = None
        self._best_of: str | None = None

    def start(self, context: Context) -> bool:
        """Take the run's monitor where none was given.

        Returns:
            False where a restored best belongs to another metric, and was dropped for that.

        Raises:
            ConfigError: the run monitors nothing either.
        """
        self._monitor = self._monitor or context.monitor
        if self._monitor is None:
            message = "is null, and the run itself monitors nothing; allowed: the name of a metric"
            raise ConfigError([Problem(self._key, message, f"{self._key}=-loss")])
        if self._best_of in (None, str(self._monitor)):
            return True
        log.warning(
            "%s is now %s: the best %s so far no longer counts",
            self._key,
            self._monitor,
            self._best_of,
        )
        self._best = self._best_of = None
        return False

    def improved(self, metrics: Mapping[str, float], min_delta: float = 0.0) -> bool:
        """Whether an evaluation is better than the best before it by more than ``min_delta``.

        A value that is absent or NaN never is.

        Raises:
            ConfigError: no evaluation so far had this metric.
        """
        assert self._monitor is not None, "start comes first"
        if self._best is None:
            self._monitor.check(metrics, self._key)
        score = self._monitor.score(metrics)
        if not self._monitor.better(score, self._best, min_delta):
            return False
        self._best, self._best_of = score, str(self._monitor)
        return True

    def __str__(self) -> str:
        return str(self._monitor)

    def state(self) -> dict[str, Any]:
        """The best score and the metric it belongs to, as JSON values."""
        return {"best": self._best, "best_of": self._best_of}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self._best, self._best_of = state["best"], state["best_of"]
