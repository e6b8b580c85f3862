"""Loaders: they read what a plan says, as it suits the data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from expkit.core.batch import Batch, Indices, Window
from expkit.core.errors import DataError
from expkit.core.seeding import derive_seed
from expkit.data.dataset import ArrayDataset, Dataset
from expkit.data.plan import Plan, padding_weights, shard
from expkit.data.randomness import seeds_at
from expkit.data.reading import OwnReader, Reader, Request, read

_READ_BYTES = 2**21  # rows gathered at once: more saves no time
_READ_BATCHES = 64
_READ_INDICES = 8192  # indices computed at once for samples that are read batch by batch


@final
class PlanLoader:
    """Training windows by a plan; see `expkit.core.batch.TrainLoader`.

    Rows of an `ArrayDataset` are gathered for several batches at once into fresh memory, and the
    batches are views into it: what was handed out is never written again. Other data sets, and
    those that workers read, are asked for one micro-batch at a time.

    Args:
        dataset: where the samples come from.
        plan: this rank's share of each step.
        seed: the run's, of what is drawn when samples are read.
        reader: how they are read; None = in this process.
    """

    def __init__(
        self, dataset: Dataset, plan: Plan, seed: int = 0, reader: Reader | None = None
    ) -> None:
        self._dataset = dataset
        self._plan = plan
        self._seed = seed
        self._reader = reader or OwnReader(dataset)
        self._steps_per_read = max(1, _READ_INDICES // plan.window_size)
        self._gathers = False
        if isinstance(dataset, ArrayDataset) and dataset.is_even and reader is None:
            layout = plan.layout(0)
            window_bytes = layout.share * max(1, dataset.sample_bytes)
            if window_bytes <= _READ_BYTES:
                steps = min(_READ_BYTES // window_bytes, _READ_BATCHES // len(layout.micro_batches))
                self._gathers = True
                self._steps_per_read = max(1, steps)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""
        return self._plan.steps

    @property
    def signature(self) -> dict[str, Any]:
        """How an epoch is cut into steps, as JSON values: what a position in it depends on."""
        plan = self._plan
        return {
            "samples_per_epoch": plan.length,
            "samples_per_step": plan.window_size,
            "order_begins": plan.first_samples(),
        }

    def state(self) -> dict[str, Any]:
        """Nothing: epoch and step tell all."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take back."""

    def windows(self, epoch: int, start: int = 0) -> Iterator[Window]:
        """The windows of an epoch from step ``start`` on; what lies before is not read."""
        return self._gathered(epoch, start) if self._gathers else self._one_by_one(epoch, start)

    def _gathered(self, epoch: int, start: int) -> Iterator[Window]:
        """Rows for several windows at once; batches are views into them."""
        plan = self._plan
        for first, last, indices in self._blocks(epoch, start):
            columns = list(read(self._dataset, indices).items())
            place = 0
            for step in range(first, last):
                cuts, share, weight, _ = plan.layout(step)
                batches = []
                for a, b, is_padded in cuts:
                    begin, end = place + a, place + b
                    weights = padding_weights(b - a) if is_padded else None
                    fields = {name: rows[begin:end] for name, rows in columns}
                    batches.append(Batch(fields, indices[begin:end], weights))
                yield Window(batches, float(weight))
                place += share

    def _one_by_one(self, epoch: int, start: int) -> Iterator[Window]:
        batches = []
        for request, fields in self._reader.read(self._requests(epoch, start)):
            batches.append(request.batch(fields))
            if request.window_weight is not None:
                yield Window(batches, request.window_weight)
                batches = []

    def _requests(self, epoch: int, start: int) -> Iterator[Request]:
        """What is to be read for each micro-batch."""
        plan, key = self._plan, derive_seed(self._seed, "samples", epoch)
        for first, last, indices in self._blocks(epoch, start):
            seeds = seeds_at(key, plan.positions(first, last))
            place = 0
            for step in range(first, last):
                cuts, share, weight, _ = plan.layout(step)
                for a, b, is_padded in cuts:
                    own = slice(place + a, place + b)
                    yield Request(
                        indices[own],
                        seeds[own],
                        padding_weights(b - a) if is_padded else None,
                        float(weight) if b == share else None,
                    )
                place += share

    def _blocks(self, epoch: int, start: int) -> Iterator[tuple[int, int, Indices]]:
        """Stretches of windows [first, last) and this rank's indices in them."""
        plan = self._plan
        for first in range(start, plan.steps, self._steps_per_read):
            last = min(first + self._steps_per_read, plan.steps)
            indices = plan.indices(epoch, first, last)
            check_range(indices, len(self._dataset))
            yield first, last, indices


@final
class ShardLoader:
    """A rank's part of an evaluation set, in order; see `expkit.core.batch.EvalLoader`.

    Args:
        dataset: where the samples come from.
        batch_size: samples per batch.
        length: how many of the samples, from the first on, the ranks share.
        rank: whose part.
        world_size: how many ranks share the samples.
        in_step: whether a rank that has no batch left goes on, as long as others have some, with a
            sample of weight 0.
        whole_batches: whether the ranks share out batches and not samples, so that each batch is
            one that a rank alone would have.
        seed: of what is drawn when samples are read, the same each time.
        reader: how they are read; None = in this process.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        length: int,
        rank: int = 0,
        world_size: int = 1,
        in_step: bool = False,
        whole_batches: bool = False,
        seed: int = 0,
        reader: Reader | None = None,
    ) -> None:
        self._reader = reader or OwnReader(dataset)
        self._seed = seed
        self._batch_size = batch_size
        unit = batch_size if whole_batches else 1
        units = -(-length // unit)
        own_units = shard(units, rank, world_size)
        self._places = range(own_units.start * unit, min(own_units.stop * unit, length))
        own, longest = len(self._places), min(len(shard(units, 0, world_size)) * unit, length)
        self._num_fillers = -(-longest // batch_size) - -(-own // batch_size) if in_step else 0

    def batches(self) -> Iterator[Batch]:
        """This rank's batches, from the beginning; none where its part is empty."""
        for request, fields in self._reader.read(self._requests()):
            yield request.batch(fields)

    def _requests(self) -> Iterator[Request]:
        stop = self._places.stop
        for start in range(self._places.start, stop, self._batch_size):
            indices = np.arange(start, min(start + self._batch_size, stop), dtype=np.int64)
            yield Request(indices, seeds_at(self._seed, indices))
        for _ in range(self._num_fillers):
            indices = np.zeros(1, dtype=np.int64)
            yield Request(indices, seeds_at(self._seed, indices), np.zeros(1, dtype=np.float32))


def check_range(indices: Indices, length: int) -> None:
    """A negative index would silently count from the end."""
    if indices.min() < 0 or indices.max() >= length:
        wrong = indices[(indices < 0) | (indices >= length)][0]
        raise DataError(f"the sampler gave index {wrong}; allowed: 0 to {length - 1}")
