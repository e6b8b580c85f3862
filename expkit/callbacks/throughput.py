"""Records how fast a run trains."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import perf_counter
from typing import final

from expkit.callbacks.announce import announce
from expkit.callbacks.pace import three_digits
from expkit.core.events import Callback, Context

log = logging.getLogger(__name__)


class _Watch:
    """Counts steps and samples, and the seconds that they took."""

    def __init__(self, context: Context, now: float) -> None:
        self.since = now
        self._step, self._samples = context.progress.step, context.progress.samples

    def rates(self, context: Context, now: float) -> tuple[float, float] | None:
        """Samples per second and seconds per step; None where nothing took any time."""
        seconds, steps = now - self.since, context.progress.step - self._step
        if not (seconds > 0.0 and steps):
            return None
        return (context.progress.samples - self._samples) / seconds, seconds / steps


@final
class Throughput(Callback):
    """Adds ``samples_per_s`` (over all ranks) and ``step_s`` to each training record.

    Both are of the steps since the record before; a line at the end of an epoch tells those of the
    epoch. Evaluations are left out; loading data, writing records and checkpoints belong to
    training.
    """

    run_on = "main"

    def __init__(self) -> None:
        self._record: _Watch | None = None
        self._epoch: _Watch | None = None
        self._paused_at = 0.0

    def fit_start(self, context: Context) -> None:
        """Count from here."""
        self._record = _Watch(context, perf_counter())

    def epoch_start(self, context: Context) -> None:
        """Count the epoch from here."""
        self._epoch = _Watch(context, perf_counter())

    def eval_start(self, context: Context) -> None:
        """Stop the watches."""
        self._paused_at = perf_counter()

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """Let the watches go on."""
        pause = perf_counter() - self._paused_at
        for watch in (self._record, self._epoch):
            if watch is not None:
                watch.since += pause

    def step_end(self, context: Context) -> None:
        """Tell the speed where a record is due."""
        if not context.log_due or self._record is None:
            return
        now = perf_counter()
        rates = self._record.rates(context, now)
        if rates is not None:
            context.log({"samples_per_s": rates[0], "step_s": rates[1]})
        self._record = _Watch(context, now)

    def epoch_end(self, context: Context) -> None:
        """Tell the speed of the epoch."""
        rates = None if self._epoch is None else self._epoch.rates(context, perf_counter())
        if rates is not None:
            announce(
                log,
                f"epoch {context.progress.epoch}: {three_digits(rates[0])} samples/s, "
                f"{three_digits(1000 * rates[1])} ms per step",
            )
        self._epoch = None
