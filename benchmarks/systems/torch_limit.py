"""The fastest plain loop found for torch: arrays in memory, ``index_select``, a fused Adam."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.systems.torch_loop import loop
from benchmarks.systems.torch_network import Network
from benchmarks.work import Outcome, Work, samples


class Rows:
    """Batches of rows in a new order each time."""

    def __init__(self, x: Tensor, y: Tensor, batch_size: int) -> None:
        self._x, self._y, self._batch_size = x, y, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(len(self._x)).split(self._batch_size):
            yield self._x.index_select(0, chosen), self._y.index_select(0, chosen)


def train(work: Work, directory: Path) -> Outcome:
    """Train without a DataLoader; the evaluation set is one batch."""
    x, y, x_eval, y_eval = map(torch.from_numpy, samples(work))
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=work.lr, fused=True)
    batches = Rows(x, y, work.batch_size)
    return loop(work, directory, model, optimizer, batches, [(x_eval, y_eval)])
