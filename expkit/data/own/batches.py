"""Training by a batch sampler of the user's own: its batches stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

from expkit.core.batch import Indices, Window
from expkit.core.errors import DataError
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset
from expkit.data.loader import check_range
from expkit.data.own.sampler import OwnSampler
from expkit.data.plan import padding_weights, share_of
from expkit.data.randomness import seeds_at
from expkit.data.reading import OwnReader, Reader, Request

_MARK_BATCHES = 4


@final
class BatchLoader:
    """Training windows of a sampler's batches; see `expkit.core.batch.TrainLoader`.

    A step is ``accumulate`` batches, whatever their sizes, and each rank takes its share of every
    batch: every world_size-th sample from its own number on. A share that is one short is filled
    up with a repeat of weight 0.

    Args:
        dataset: where the samples come from.
        sampler: gives the batches; bound to the data set.
        accumulate: batches per step.
        rank: whose windows.
        world_size: how many ranks share the samples.
        limit_batches: end the epoch after this many batches; None = never.
        seed: the run's, of what is drawn when samples are read.
        reader: how they are read; None = in this process.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: OwnSampler,
        *,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
        limit_batches: int | None = None,
        seed: int = 0,
        reader: Reader | None = None,
    ) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._accumulate = accumulate
        self._rank, self._world_size = rank, world_size
        self._limit = limit_batches
        self._seed = seed
        self._reader = reader or OwnReader(dataset)
        self._number = sampler.num_batches
        if self._number is not None and limit_batches is not None:
            self._number = min(self._number, limit_batches)
        self._first_batches = [batch.tolist() for batch in self._batches(0)[:_MARK_BATCHES]]

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in one epoch; None where the sampler does not say how many it has."""
        return None if self._number is None else -(-self._number // self._accumulate)

    @property
    def signature(self) -> dict[str, Any]:
        """How an epoch is cut into steps, as JSON values: what a position in it depends on."""
        return {
            "samples_per_epoch": None,
            "samples_per_step": None,
            "batches_per_epoch": self._number,
            "batches_per_step": self._accumulate,
            "order_begins": self._first_batches,
        }

    def state(self) -> dict[str, Any]:
        """Nothing: epoch and step tell all."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take back."""

    def windows(self, epoch: int, start: int = 0) -> Iterator[Window]:
        """The windows of an epoch from step ``start`` on; what lies before is not read."""
        given = self._batches(epoch)
        steps = -(-len(given) // self._accumulate)
        if self._number is not None and len(given) != self._number:
            raise DataError(
                f"the batch sampler has {self._number} batches by its length, but gave "
                f"{len(given)} in epoch {epoch + 1}; allowed: a __len__ that is true, or none"
            )
        step, batches = start, []
        for request, fields in self._reader.read(self._requests(given, epoch, start)):
            batches.append(request.batch(fields))
            if request.window_weight is not None:
                step += 1
                yield Window(batches, request.window_weight, self._number is None and step == steps)
                batches = []

    def _batches(self, epoch: int) -> list[Indices]:
        return self._sampler.batches(epoch)[: self._limit]

    def _requests(self, given: list[Indices], epoch: int, start: int) -> Iterator[Request]:
        """What is to be read for each micro-batch."""
        key, size = derive_seed(self._seed, "samples", epoch), self._accumulate
        position = sum(map(len, given[: start * size]))
        for first in range(start * size, len(given), size):
            group = given[first : first + size]
            weight = float(sum(map(len, group)))
            for number, batch in enumerate(group, 1):
                check_range(batch, len(self._dataset))
                places, is_padded = share_of(len(batch), self._rank, self._world_size)
                yield Request(
                    batch[places],
                    seeds_at(key, position + places),
                    padding_weights(len(places)) if is_padded else None,
                    weight if number == len(group) else None,
                )
                position += len(batch)
