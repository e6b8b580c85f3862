"""Records where the time of a step goes."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Any, final

from expkit.callbacks.announce import announce
from expkit.core.batch import Batch, Indices
from expkit.core.events import Callback, Context
from expkit.core.loss_term import LossTerm

log = logging.getLogger(__name__)

_PARTS = ("data", "forward", "backward", "step")


@final
class StepTimer(Callback):
    """Adds to each training record the shares of each part of a step since the record before.

    ``time/data`` is waiting for batches and writing records, ``time/forward`` the model and its
    loss, ``time/backward`` the gradients, ``time/step`` clipping and the update; they add up to 1.
    A line at the end of an epoch tells those of the epoch. Evaluations and the writing of
    checkpoints are left out. The times are the host's: what a device does later is counted where
    the host waits for it.
    """

    run_on = "main"

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(_PARTS, 0.0)
        self._epoch_seconds = dict.fromkeys(_PARTS, 0.0)
        self._mark = 0.0
        self._stopped = False

    def epoch_start(self, context: Context) -> None:
        """Count from here."""
        self._epoch_seconds = dict.fromkeys(_PARTS, 0.0)
        self._mark, self._stopped = perf_counter(), False

    def batch_start(self, context: Context, batch: Batch, indices: Indices) -> None:
        """The data has come."""
        if self._stopped:
            self._mark, self._stopped = perf_counter(), False
        else:
            self._book("data")

    def backward_start(self, context: Context, loss: LossTerm) -> None:
        """The loss is known."""
        self._book("forward")

    def backward_end(self, context: Context, loss: LossTerm) -> None:
        """The gradients are known."""
        self._book("backward")

    def step_end(self, context: Context) -> None:
        """The update is made; tell the shares where a record is due."""
        self._book("step")
        if not context.log_due:
            return
        shares = _shares(self._seconds)
        context.log({f"time/{part}": share for part, share in shares.items()})
        self._seconds = dict.fromkeys(_PARTS, 0.0)

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """What lies behind was no training."""
        self._mark = perf_counter()

    def save(self, context: Context, state: dict[str, Any]) -> None:
        """What follows, up to the next batch, is no training."""
        self._stopped = True

    def epoch_end(self, context: Context) -> None:
        """Tell the shares of the epoch."""
        shares = _shares(self._epoch_seconds)
        self._epoch_seconds = dict.fromkeys(_PARTS, 0.0)
        if shares:
            listed = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
            announce(log, f"epoch {context.progress.epoch}: time of a step: {listed}")

    def _book(self, part: str) -> None:
        now = perf_counter()
        self._seconds[part] += now - self._mark
        self._epoch_seconds[part] += now - self._mark
        self._mark = now


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """The part of each in the whole; empty where nothing took any time."""
    total = sum(seconds.values())
    return {part: own / total for part, own in seconds.items()} if total > 0.0 else {}
