"""The best evaluation of a run so far."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from expkit.core.errors import ConfigError, Problem
from expkit.core.monitor import Monitor

log = logging.getLogger(__name__)


class Best:
    """Keeps the evaluation with the greatest score; a value that is NaN or absent never counts.

    Args:
        monitor: the metric that decides; None = nothing is ever best.

    Attributes:
        score: of the best evaluation, oriented so that larger is better; None before the first.
        latest: score of the evaluation seen last, or None.
        metrics, epoch, step: of the best evaluation.
    """

    def __init__(self, monitor: Monitor | None) -> None:
        self._monitor = monitor
        self._checked = False
        self.score: float | None = None
        self.latest: float | None = None
        self.metrics: dict[str, float] = {}
        self.epoch: int | None = None
        self.step: int | None = None

    def check(self, names: Iterable[str]) -> None:
        """Raise ConfigError where the monitored metric is not among these names."""
        if self._monitor is not None:
            self._monitor.check(names)

    def see(self, metrics: Mapping[str, float], epoch: int, step: int) -> bool:
        """Take an evaluation.

        Returns:
            Whether it is the best so far; of equals the first stays.

        Raises:
            ConfigError: the first evaluation does not have the monitored metric.
        """
        if self._monitor is None:
            return False
        if not self._checked:
            self.check(metrics)
            self._checked = True
        self.latest = self._monitor.score(metrics)
        if self.latest is None:
            log.warning(
                "%s has no value at step %d; this evaluation cannot be the best",
                self._monitor.name,
                step,
            )
        if not self._monitor.better(self.latest, self.score):
            return False
        self.score, self.metrics, self.epoch, self.step = self.latest, dict(metrics), epoch, step
        return True

    def state(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "monitor": self._judged_by,
            "score": self.score,
            "metrics": self.metrics,
            "epoch": self.epoch,
            "step": self.step,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave.

        Raises:
            ConfigError: that best was judged by another metric, so that no score compares with it.
        """
        self._checked = state["score"] is not None
        if self._checked and state["monitor"] != self._judged_by:
            message = (
                f"is {self._judged_by or 'null'}, but the best checkpoint so far was judged by "
                f"{state['monitor']}; allowed: the same as before, or a new run with init_from"
            )
            raise ConfigError([Problem("monitor", message, f"monitor={state['monitor']}")])
        self.score, self.metrics = state["score"], dict(state["metrics"])
        self.epoch, self.step = state["epoch"], state["step"]

    @property
    def _judged_by(self) -> str | None:
        return None if self._monitor is None else str(self._monitor)
