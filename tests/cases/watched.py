"""A run with a callback of every kind that has a state, trained in one part or in several."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Sequence
from typing import Any

import numpy as np

from expkit.callbacks import EarlyStop, ExponentialMovingAverage, NanGuard, RunOnBest
from expkit.core.events import Callback, on
from expkit.core.trainer import Trainer
from tests.cases.parts import Scripted, samples
from tests.cases.ranks.on_rank.parts import Interrupt

SCORES = (0.5, 0.7, 0.6, 0.65, 0.6, 0.6)
"""Of evaluations after each second step: the best is at step 4, patience ends at step 12."""

Notes = list[tuple[str, int]]


class Tally(Callback):
    """A user's callback, with numbers and an array to remember."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.sums = np.zeros(2)

    def step_end(self, context):
        self.steps.append(context.progress.step)
        self.sums += context.progress.step, context.progress.samples

    def state(self):
        return {"steps": self.steps, "sums": self.sums}

    def load_state(self, state):
        self.steps, self.sums = list(state["steps"]), np.array(state["sums"])


def watchers(notes: Notes) -> dict[str, Callback]:
    """New callbacks for a part of a run; those that run functions note where they did."""

    @on("step_end", every=3)
    def third(context):
        notes.append(("third step", context.progress.step))

    @on("eval_end", once=3)
    def evaluated(context, metrics):
        notes.append(("third evaluation", context.progress.step))

    @on("epoch_start", every=2)
    def second(context):
        notes.append(("second epoch", context.progress.epoch))

    def best(context, metrics):
        notes.append(("best", context.progress.step))

    return {
        "average": ExponentialMovingAverage(decay=0.8),
        "patience": EarlyStop(patience=4),
        "best": RunOnBest(best),
        "guard": NanGuard("skip"),
        "tally": Tally(),
        "third": third,
        "evaluated": evaluated,
        "second": second,
    }


NOTED: Notes = [
    ("best", 2),
    ("third step", 3),
    ("best", 4),
    ("second epoch", 1),
    ("third step", 6),
    ("third evaluation", 6),
    ("third step", 9),
    ("third step", 12),
]
"""What an undisturbed run notes."""


def spoilt(n: int) -> dict[str, np.ndarray]:
    """Samples of which one cannot be trained on, so that one step of each epoch is left out."""
    data = samples(n)
    data["x"][7] = np.nan
    return data


def train(
    make: Function[..., Trainer], go_on: Function[[Trainer], Any], stops: Sequence[int]
) -> tuple[Trainer, Notes, list[Any]]:
    """Train in parts: a stop signal comes during each of the steps.

    Args:
        make: the trainer of a part, given its callbacks and metrics.
        go_on: gives a trainer the last state that was kept.
        stops: steps.

    Returns:
        The trainer of the last part, and what was noted and logged in all of them.
    """
    notes: Notes = []
    rows: list[Any] = []
    scores = iter(SCORES)
    metrics = [lambda: next(scores)] * len(SCORES)
    for stop in [*stops, None]:
        signal = Interrupt(stop)
        callbacks = watchers(notes) | {"signal": signal}
        trainer = make(callbacks=callbacks, metrics=Scripted(*metrics))
        signal.trainer = trainer
        if rows:
            go_on(trainer)
        result = trainer.fit()
        assert (result.status, result.steps) == (
            ("completed", 12) if stop is None else ("interrupted", stop)
        )
        rows += trainer._logger.rows
    return trainer, notes, rows
