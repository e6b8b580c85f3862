"""Records how fast a run trains."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import final

from expkit.core.events import Callback, Context


@final
class Throughput(Callback):
    """Adds ``samples_per_s`` (over all ranks) and ``step_s`` to each training record.

    Both are of the steps since the record before. Evaluations are left out; loading data, writing
    records and checkpoints belong to training.
    """

    run_on = "main"

    def __init__(self) -> None:
        self._since = 0.0
        self._paused_at = 0.0
        self._step = 0
        self._samples = 0.0

    def fit_start(self, context: Context) -> None:
        """Count from here."""
        self._restart(context, perf_counter())

    def eval_start(self, context: Context) -> None:
        """Stop the watch."""
        self._paused_at = perf_counter()

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """Let the watch go on."""
        self._since += perf_counter() - self._paused_at

    def step_end(self, context: Context) -> None:
        """Tell the speed where a record is due."""
        if not context.log_due:
            return
        now = perf_counter()
        seconds, progress = now - self._since, context.progress
        if seconds > 0.0:
            context.log(
                {
                    "samples_per_s": (progress.samples - self._samples) / seconds,
                    "step_s": seconds / (progress.step - self._step),
                }
            )
        self._restart(context, now)

    def _restart(self, context: Context, now: float) -> None:
        progress = context.progress
        self._since, self._step, self._samples = now, progress.step, progress.samples
