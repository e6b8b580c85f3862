"""The work that all systems do alike, and the clock that times them at the same place."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

FEATURES, HIDDEN, CLASSES = 64, 128, 10
_SPLIT_SEED = 0
_HELD_OUT = 360


@dataclass(frozen=True)
class Work:
    """A training of the network 64-128-10 on the handwritten digits with Adam.

    Attributes:
        evaluates: whether each epoch ends with an evaluation, and the run keeps TensorBoard scalars
            and the best checkpoint.
        epochs, batch_size, lr: as in any training.
        log_every: steps between two readings of the loss.
    """

    evaluates: bool = False
    epochs: int = 30
    batch_size: int = 32
    lr: float = 1e-3
    log_every: int = 10

    def shortened(self) -> Work:
        """The same in a few epochs."""
        return dataclasses.replace(self, epochs=4)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return -(-len(samples(self).x_train) // self.batch_size)

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return self.epochs * self.steps_per_epoch


class Samples(NamedTuple):
    """The digits, shuffled once; the evaluation part is empty where nothing is evaluated."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_eval: NDArray[np.float32]
    y_eval: NDArray[np.int64]


def samples(work: Work) -> Samples:
    """The data of a work, the same for every system."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int64)
    cut = len(x) - _HELD_OUT if work.evaluates else len(x)
    return Samples(x[:cut], y[:cut], x[cut:], y[cut:])


class Clock:
    """Counts training forwards, and times whole epochs between the first and the last."""

    def __init__(self) -> None:
        self.set(0, 0)

    def set(self, first: int, last: int) -> None:
        """Start anew; the time between forwards number ``first`` and ``last`` will be taken."""
        self.forwards = 0
        self._first, self._last = first, last
        self._marks: list[tuple[float, float]] = []

    def tick(self) -> None:
        """To be called at the beginning of each training forward."""
        if self.forwards in (self._first, self._last):
            self._marks.append((time.perf_counter(), time.process_time()))
        self.forwards += 1

    def seconds_per_step(self) -> tuple[float, float]:
        """Elapsed and processor time."""
        (wall, cpu), (end_wall, end_cpu) = self._marks
        steps = self._last - self._first
        return (end_wall - wall) / steps, (end_cpu - cpu) / steps


CLOCK = Clock()


@dataclass(frozen=True)
class Outcome:
    """What a system says of its training.

    Attributes:
        losses: every reading of the training loss.
        best: best accuracy of the evaluations; None without any.
    """

    losses: list[float]
    best: float | None = None
