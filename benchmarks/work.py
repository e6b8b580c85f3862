"""The work that all systems do alike, and the clock that times them at the same place."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

FEATURES, HIDDEN, CLASSES = 64, 128, 10
VOCABULARY, LENGTH = 96, 128
WIDTH, LAYERS, HEADS = 256, 4, 4
_SPLIT_SEED = 0
_HELD_OUT = 360


@dataclass(frozen=True)
class Work:
    """A training with Adam: of the network 64-128-10 on digits, or of a transformer.

    Attributes:
        network: ``mlp``, or ``transformer`` (a language model of width 256 with 4 layers, on
            sequences of 128 tokens; an epoch is one step).
        evaluates: whether each epoch ends with an evaluation, and the run keeps TensorBoard scalars
            and the best checkpoint.
        epochs, lr: as in any training.
        batch_size: samples of a rank's micro-batch.
        log_every: steps between two readings of the loss.
        accumulate: micro-batches of a rank per step.
        ranks: processes that train together.
    """

    network: Literal["mlp", "transformer"] = "mlp"
    evaluates: bool = False
    epochs: int = 30
    batch_size: int = 32
    lr: float = 1e-3
    log_every: int = 10
    accumulate: int = 1
    ranks: int = 1

    def shortened(self) -> Work:
        """The same in a few epochs."""
        return dataclasses.replace(self, epochs=4)

    @property
    def samples_per_step(self) -> int:
        """Samples of a whole step, over all ranks."""
        return self.batch_size * self.accumulate * self.ranks

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return -(-len(samples(self).x_train) // self.samples_per_step)

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return self.epochs * self.steps_per_epoch

    @property
    def forwards(self) -> int:
        """Micro-batches of each rank in all."""
        return self.steps * self.accumulate


class Samples(NamedTuple):
    """Shuffled once; the evaluation part is empty where nothing is evaluated."""

    x_train: NDArray[np.float32] | NDArray[np.int64]
    y_train: NDArray[np.int64]
    x_eval: NDArray[np.float32] | NDArray[np.int64]
    y_eval: NDArray[np.int64]


def samples(work: Work) -> Samples:
    """The data of a work, the same for every system.

    Several ranks get whole steps only: what is left over is nothing that all share out alike.
    """
    if work.network == "transformer":
        return _sequences(work.samples_per_step)
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int64)
    cut = len(x) - _HELD_OUT if work.evaluates else len(x)
    used = cut if work.ranks == 1 else cut // work.samples_per_step * work.samples_per_step
    return Samples(x[:used], y[:used], x[cut:], y[cut:])


def _sequences(number: int) -> Samples:
    """Tokens of which some are frequent; all that can be learnt is how frequent each one is."""
    shares = 1 / np.arange(1, VOCABULARY + 1)
    generator = np.random.default_rng(_SPLIT_SEED)
    tokens = generator.choice(VOCABULARY, (number, LENGTH + 1), p=shares / shares.sum())
    x, y = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    return Samples(x, y, x[:0], y[:0])


class Clock:
    """Counts training forwards, and times whole steps between two of them."""

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

    def seconds_per_forward(self) -> tuple[float, float]:
        """Elapsed and processor time."""
        (wall, cpu), (end_wall, end_cpu) = self._marks
        forwards = self._last - self._first
        return (end_wall - wall) / forwards, (end_cpu - cpu) / forwards


CLOCK = Clock()


@dataclass(frozen=True)
class Outcome:
    """What a system says of its training.

    Attributes:
        losses: every reading of the training loss; none where another rank keeps them.
        best: best accuracy of the evaluations; None without any.
        final: loss of the trained network on all training samples, where it is compared.
    """

    losses: list[float]
    best: float | None = None
    final: float | None = None
