import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from expkit.core.collective import Collective


class ThreadRank(Collective):
    """One rank of a world of threads."""

    def __init__(self, rank, world_size, board, gate):
        super().__init__()
        self.rank = self.local_rank = rank
        self.world_size = world_size
        self.num_reductions = 0
        self._board = board
        self._gate = gate

    def all_gather(self, value):
        self._board[self.rank] = value
        self._gate.wait(10)
        values = [self._board[rank] for rank in range(self.world_size)]
        self._gate.wait(10)
        return values

    def all_reduce(self, array, op="sum"):
        assert array.dtype in (np.float64, np.int64)
        self.num_reductions += 1
        arrays = self.all_gather(array)
        assert len({each.shape for each in arrays}) == 1
        return {"sum": np.sum, "min": np.min, "max": np.max}[op](arrays, axis=0)

    def broadcast(self, value, src=0):
        return self.all_gather(value)[src]

    def barrier(self):
        self.all_gather(None)

    def answer(self, flags):
        raise AssertionError("an evaluation exchanges no gradients")

    def answers(self):
        raise AssertionError("an evaluation exchanges no gradients")


def _on_ranks(world_size, function):
    """What ``function(group)`` returns on each rank, all run at the same time."""
    board, gate = {}, threading.Barrier(world_size)

    def run(rank):
        try:
            return function(ThreadRank(rank, world_size, board, gate))
        except BaseException:
            gate.abort()
            raise

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(run, range(world_size)))


def _feed(metric, output, target, weights=None, cuts=(), field="y", name="output"):
    """Update with the samples in parts that end at ``cuts``."""
    for part in np.split(np.arange(len(target)), sorted(cuts)):
        metric.update(
            {name: output[part]}, {field: target[part]}, None if weights is None else weights[part]
        )
    return metric


@pytest.fixture(scope="session")
def on_ranks():
    return _on_ranks


@pytest.fixture(scope="session")
def feed():
    return _feed
