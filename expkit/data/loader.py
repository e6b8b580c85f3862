"""Loaders in the training process: they read what a plan says, as it suits the data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch, Indices, Window
from expkit.core.errors import DataError, ExpkitError
from expkit.data.dataset import ArrayDataset, Dataset
from expkit.data.plan import Plan, shard

_READ_BYTES = 2**21  # rows gathered at once: more saves no time
_READ_BATCHES = 64
_READ_INDICES = 8192  # indices computed at once for samples that are read batch by batch

Reader = Callable[[int, int], Mapping[str, Any]]


@final
class PlanLoader:
    """Training windows by a plan; see `expkit.core.batch.TrainLoader`.

    Rows of an `ArrayDataset` are gathered for several batches at once into fresh memory, and the
    batches are views into it: what was handed out is never written again. Other data sets are asked
    for one micro-batch at a time, when it is its turn.

    Args:
        dataset: where the samples come from.
        plan: this rank's share of each step.
    """

    def __init__(self, dataset: Dataset, plan: Plan) -> None:
        self._dataset = dataset
        self._plan = plan
        self._read: Callable[[Dataset, Indices], Reader] = _on_demand
        self._steps_per_read = max(1, _READ_INDICES // plan.window_size)
        if isinstance(dataset, ArrayDataset):
            layout = plan.layout(0)
            window_bytes = layout.share * max(1, dataset.sample_bytes)
            if window_bytes <= _READ_BYTES:
                steps = min(_READ_BYTES // window_bytes, _READ_BATCHES // len(layout.micro_batches))
                self._read = _gathered
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
        plan = self._plan
        for first in range(start, plan.steps, self._steps_per_read):
            last = min(first + self._steps_per_read, plan.steps)
            indices = plan.indices(epoch, first, last)
            _check_range(indices, len(self._dataset))
            fields = self._read(self._dataset, indices)
            place = 0
            for step in range(first, last):
                cuts, share, weight, _ = plan.layout(step)
                batches = []
                for a, b, is_padded in cuts:
                    begin, end = place + a, place + b
                    weights = _repeat_last(b - a) if is_padded else None
                    batches.append(Batch(fields(begin, end), indices[begin:end], weights))
                yield Window(batches, float(weight))
                place += share


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
    ) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._places = shard(length, rank, world_size)
        own, longest = len(self._places), len(shard(length, 0, world_size))
        self._num_fillers = -(-longest // batch_size) - -(-own // batch_size) if in_step else 0

    def batches(self) -> Iterator[Batch]:
        """This rank's batches, from the beginning; none where its part is empty."""
        stop = self._places.stop
        for start in range(self._places.start, stop, self._batch_size):
            indices = np.arange(start, min(start + self._batch_size, stop), dtype=np.int64)
            yield Batch(_fetch(self._dataset, indices), indices)
        for _ in range(self._num_fillers):
            indices = np.zeros(1, dtype=np.int64)
            yield Batch(_fetch(self._dataset, indices), indices, np.zeros(1, dtype=np.float32))


def _gathered(dataset: Dataset, indices: Indices) -> Reader:
    """Read all of them now; batches are views into the rows."""
    columns = list(_fetch(dataset, indices).items())
    return lambda start, stop: {name: rows[start:stop] for name, rows in columns}


def _on_demand(dataset: Dataset, indices: Indices) -> Reader:
    """Read a batch when it is asked for."""
    return lambda start, stop: _fetch(dataset, indices[start:stop])


def _fetch(dataset: Dataset, indices: Indices) -> Mapping[str, Any]:
    try:
        fields = dataset.fetch(indices)
    except ExpkitError:
        raise
    except Exception as error:
        shown = f"{indices[:16].tolist()}{' and more' if len(indices) > 16 else ''}"
        message = f"samples {shown} cannot be read: {type(error).__name__}: {error}"
        raise DataError(message) from error
    if not isinstance(fields, Mapping):
        raise DataError(
            f"the data set gave a {type(fields).__name__} for a batch; allowed: a dict of arrays"
        )
    for name, value in fields.items():
        if isinstance(value, np.ndarray) and (value.ndim == 0 or len(value) != len(indices)):
            raise DataError(
                f"field {name!r} has shape {value.shape} for {len(indices)} samples; allowed: the "
                "sample as first axis"
            )
    return fields


def _check_range(indices: Indices, length: int) -> None:
    """A negative index would silently count from the end."""
    if indices.min() < 0 or indices.max() >= length:
        wrong = indices[(indices < 0) | (indices >= length)][0]
        raise DataError(f"the sampler gave index {wrong}; allowed: 0 to {length - 1}")


def _repeat_last(size: int) -> NDArray[np.float32]:
    """Weights of a batch whose last sample is a repeat."""
    weights = np.ones(size, dtype=np.float32)
    weights[-1] = 0.0
    return weights
