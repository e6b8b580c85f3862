"""The fastest plain loop found for Paddle: arrays in memory, one NumPy index for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor

from benchmarks.systems.paddle_loop import loop
from benchmarks.systems.paddle_network import Network
from benchmarks.work import Outcome, Work, samples


class Rows:
    """Batches of rows in a new order each time."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch_size: int) -> None:
        self._x, self._y, self._batch_size = x, y, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = np.random.permutation(len(self._x))
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            yield paddle.to_tensor(self._x[chosen]), paddle.to_tensor(self._y[chosen])


def train(work: Work, directory: Path) -> Outcome:
    """Train without a DataLoader; the evaluation set is one batch."""
    x, y, x_eval, y_eval = samples(work)
    held_out = [(paddle.to_tensor(x_eval), paddle.to_tensor(y_eval))] if work.evaluates else []
    return loop(work, directory, Network(), Rows(x, y, work.batch_size), held_out)
