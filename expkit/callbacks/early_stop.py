"""Ends a run that no longer gets better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from expkit.callbacks.refusal import refuse
from expkit.callbacks.watch import MonitorWatch
from expkit.core.events import Callback, Context


@final
class EarlyStop(Callback):
    """Asks for the end of the run after ``patience`` evaluations in a row without improvement.

    A value that is NaN, infinite or absent is no improvement. The count survives a restart.

    Args:
        monitor: ``accuracy`` (larger is better) or ``-loss`` (smaller is better); None = the
            run's own monitor.
        patience: evaluations without improvement after which the run ends.
        min_delta: by how much a value must beat the best one to count as better.
    """

    def __init__(
        self, monitor: str | None = None, patience: int = 3, min_delta: float = 0.0
    ) -> None:
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
            refuse("early_stop", "patience", patience, "whole numbers from 1", 3)
        if not 0.0 <= min_delta < math.inf:
            refuse("early_stop", "min_delta", min_delta, "finite numbers from 0", 0.0)
        self._watch = MonitorWatch(monitor, "early_stop")
        self._patience = patience
        self._min_delta = min_delta
        self._waited = 0

    def fit_start(self, context: Context) -> None:
        """Take the run's monitor; a run that had been stopped before stays so."""
        if not self._watch.start(context):
            self._waited = 0
        self._stop_if_exhausted(context)

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """Count, and stop where patience is at its end."""
        if context.progress.step == 0:  # an evaluation before training is nothing to improve on
            return
        self._waited = 0 if self._watch.improved(metrics, self._min_delta) else self._waited + 1
        self._stop_if_exhausted(context)

    def _stop_if_exhausted(self, context: Context) -> None:
        if self._waited >= self._patience:
            context.request_stop(
                f"early stop: {self._watch} is no better than {self._waited} evaluations ago"
            )

    def state(self) -> dict[str, Any]:
        """The best value and the count."""
        return {"waited": self._waited, "watch": self._watch.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self._waited = int(state["waited"])
        self._watch.load_state(state["watch"])
