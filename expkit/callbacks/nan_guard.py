"""Looks at the loss of each step before it can spoil the weights."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

import logging
import math
from typing import Any, Literal, final

import numpy as np

from expkit.callbacks.refusal import refuse
from expkit.core.batch import Batch, Indices, listed
from expkit.core.errors import NonFiniteLossError
from expkit.core.events import Callback, Context
from expkit.core.loss_term import LossTerm

log = logging.getLogger(__name__)

_PATIENCE = 100
"""Skipped steps for one warning, and the most that may be skipped in a row."""

_CAUSES = "the learning rate is too high, or the data holds NaN or infinite values"


@final
class NanGuard(Callback):
    """Acts on a loss that is NaN or infinite before the update, on all ranks alike.

    It reads the losses on the host in each step, which holds an accelerator up. Without this
    callback a bad loss ends the run all the same, but only when the next record is written.

    Args:
        policy: ``stop`` ends the run with an error that names step, loss, learning rate and
            samples; ``skip`` leaves the update out and goes on, up to 100 times in a row.
    """

    def __init__(self, policy: Literal["stop", "skip"] = "stop") -> None:
        if policy not in ("stop", "skip"):
            refuse("nan_guard", "policy", policy, "stop, skip", "skip")
        self._policy = policy
        self._losses: list[LossTerm] = []
        self._indices: list[Indices] = []
        self._num_skipped = 0
        self._num_in_row = 0

    def batch_start(self, context: Context, batch: Batch, indices: Indices) -> None:
        """Remember the samples."""
        self._indices.append(indices)

    def backward_end(self, context: Context, loss: LossTerm) -> None:
        """Remember the loss, still on the device."""
        self._losses.append(loss)

    def step_start(self, context: Context) -> None:
        """Read the losses of the window, agree, and act.

        Raises:
            NonFiniteLossError: a loss is not finite, and the policy is ``stop``, or ``skip`` has
                come to its end.
        """
        sums = context.driver.read_losses(self._losses)
        indices, self._losses, self._indices = self._indices, [], []
        is_bad = ~np.isfinite(sums[:, 0])
        prefix = ""
        if not context.driver.group.any_rank(bool(is_bad.any())):
            # A gradient may be NaN though no loss is: the slope of a root at 0, or a ReLU of NaN.
            # It is the same on all ranks, and may come from any sample.
            norm = 0.0 if context.driver.scales_loss else float(context.driver.clip_gradients())
            if math.isfinite(norm):
                self._num_in_row = 0
                return
            is_bad[:] = True
            prefix = f"gradient norm {norm:g}, "
        own = [
            f"{prefix}loss {total / weight:g} on samples {listed(samples)}"
            for (total, weight), samples, bad in zip(sums, indices, is_bad, strict=True)
            if bad
        ]
        message = _describe(context, context.driver.all_gather(own))
        if self._policy == "stop":
            raise NonFiniteLossError(f"{message}; {_CAUSES}")
        self._skip(context, message)

    def _skip(self, context: Context, message: str) -> None:
        self._num_in_row += 1
        if self._num_in_row > _PATIENCE:
            raise NonFiniteLossError(
                f"{message}; the {_PATIENCE} steps before it were skipped too; {_CAUSES}"
            )
        if self._num_skipped % _PATIENCE == 0:
            log.warning("%s; update left out (said once in %d times)", message, _PATIENCE)
        self._num_skipped += 1
        context.skip_step()

    def state(self) -> dict[str, Any]:
        """How many steps were skipped."""
        return {"num_skipped": self._num_skipped, "num_in_row": self._num_in_row}

    def load_state(self, state: Any) -> None:
        """Take back what ``state`` gave."""
        self._num_skipped = int(state["num_skipped"])
        self._num_in_row = int(state["num_in_row"])


def _describe(context: Context, by_rank: list[list[str]]) -> str:
    several = len(by_rank) > 1
    findings = [
        f"{finding}{f' of rank {rank}' if several else ''}"
        for rank, found in enumerate(by_rank)
        for finding in found
    ]
    rates = ", ".join(f"{name}={rate:g}" for name, rate in context.driver.learning_rates().items())
    return f"step {context.progress.step + 1} ({rates}): {'; '.join(findings)}"
