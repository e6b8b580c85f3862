"""Shuffled orders in a process of their own: first index, seek, indices per second, memory."""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import sys
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.worker import serve
from expkit.data import Random

MEASURE, MEMORY, CHECK = "measure", "memory", "check"
BLOCK = 16_384  # indices that expkit computes at once
_SOUGHT = 0.9  # of the epoch lies before the position that is sought
_COUNTED = 400_000  # indices by whose time the rate is found
_ROUNDS = 15  # of what takes microseconds
_WARM_UP = 1000  # length of an order that is made before anything is measured
_SEED = 3


@dataclass(frozen=True)
class Shuffle:
    """The work: a data set of this many samples is put in random order.

    Attributes:
        length: samples.
    """

    length: int


class Counted:
    """A data set of which only the length is known."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def fetch(self, indices: NDArray[np.int64]) -> Any:
        raise NotImplementedError


class Order(ABC):
    """The order of an epoch, for a data set of a given length."""

    rounds = 1
    """How often it is begun anew, of which the median counts."""

    def __init__(self, length: int) -> None:
        self.length = length

    @abstractmethod
    def begin(self, epoch: int, position: int = 0) -> Iterator[int]:
        """Index after index from a position on; the first one costs what it costs to begin."""

    def whole(self, epoch: int) -> list[int]:
        """All indices of an epoch."""
        return list(self.begin(epoch))


class ExpkitOrder(Order):
    """`expkit.data.Random`."""

    rounds = _ROUNDS

    def begin(self, epoch: int, position: int = 0) -> Iterator[int]:
        sampler = Random().bind(Counted(self.length), _SEED)
        yield from sampler.indices(epoch, position, position + 1).tolist()
        for start in range(position + 1, self.length, BLOCK):
            yield from sampler.indices(epoch, start, min(start + BLOCK, self.length)).tolist()

    def in_blocks(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """The same, many at once, as a loader asks for them."""
        sampler = Random().bind(Counted(self.length), _SEED)
        for start in range(0, self.length, BLOCK):
            yield sampler.indices(epoch, start, min(start + BLOCK, self.length))


class TorchRandom(Order):
    """`torch.utils.data.RandomSampler`; it begins at 0, and what lies before is thrown away."""

    def begin(self, epoch: int, position: int = 0) -> Iterator[int]:
        import torch
        from torch.utils.data import RandomSampler

        generator = torch.Generator().manual_seed(_SEED + epoch)
        sampler = RandomSampler(Counted(self.length), generator=generator)
        return itertools.islice(sampler, position, None)


class TorchDistributed(Order):
    """`torch.utils.data.DistributedSampler` of the first of two ranks."""

    def begin(self, epoch: int, position: int = 0) -> Iterator[int]:
        return itertools.islice(self._of_rank(0, epoch), position // 2, None)

    def whole(self, epoch: int) -> list[int]:
        return [index for rank in range(2) for index in self._of_rank(rank, epoch)]

    def _of_rank(self, rank: int, epoch: int) -> Iterator[int]:
        from torch.utils.data import DistributedSampler

        sampler = DistributedSampler(Counted(self.length), num_replicas=2, rank=rank, seed=_SEED)
        sampler.set_epoch(epoch)
        return iter(sampler)


ORDERS = {
    "expkit": ExpkitOrder,
    "torch_random": TorchRandom,
    "torch_distributed": TorchDistributed,
}


def respond(order: Order, request: str) -> dict[str, Any]:
    """What a request comes to; `MEMORY` wants a process that has done nothing else."""
    next(type(order)(_WARM_UP).begin(0))  # imports
    if request == MEMORY:
        return _memory(order)
    if request == CHECK:
        whole = np.sort(order.whole(1))
        return {"is_permutation": bool(np.array_equal(whole, np.arange(order.length)))}
    sought = int(_SOUGHT * order.length)
    found = {
        "first_s": _median(order.rounds, lambda number: next(order.begin(number))),
        "seek_s": _median(order.rounds, lambda number: next(order.begin(number, sought))),
        "indices_s": _rate(order.begin(1)),
    }
    if isinstance(order, ExpkitOrder):
        epochs = map(order.in_blocks, itertools.count())  # one may have fewer than are counted
        found["in_blocks_s"] = _rate_of_blocks(itertools.chain.from_iterable(epochs))
    return found


def _median(rounds: int, act: Callable[[int], Any]) -> float:
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        act(number)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _rate(indices: Iterator[int]) -> float:
    """Indices per second of processor time, after the first one."""
    next(indices)
    began = time.process_time()
    number = sum(1 for _ in itertools.islice(indices, _COUNTED))
    return number / (time.process_time() - began)


def _rate_of_blocks(blocks: Iterator[NDArray[np.int64]]) -> float:
    """Indices per second of processor time, after the first block."""
    next(blocks)
    began, number = time.process_time(), 0
    while number < _COUNTED:
        number += len(next(blocks))
    return number / (time.process_time() - began)


def _memory(order: Order) -> dict[str, Any]:
    """Bytes by which the process grows until the first index, and those Python counts."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    next(order.begin(0))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    tracemalloc.start()
    next(order.begin(1))
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"process_bytes": grown * 1024, "traced_bytes": traced}


def main() -> None:
    """``python -m benchmarks.orders ORDER SHUFFLE``, the shuffle as JSON."""
    name, shuffle = sys.argv[1], Shuffle(**json.loads(sys.argv[2]))

    def start() -> Callable[[str], dict[str, Any]]:
        order = ORDERS[name](shuffle.length)
        return lambda request: respond(order, request)

    serve(start)


if __name__ == "__main__":
    main()
