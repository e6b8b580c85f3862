"""Samples that come one after the other, and nobody knows how many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from expkit.core.batch import Batch, Indices, Window
from expkit.core.errors import DataError
from expkit.data.collate import Collate
from expkit.data.dataset import CollateFunction
from expkit.data.own.hugging_face import is_split
from expkit.data.own.pass_loader import PassLoader, PassShardLoader
from expkit.data.own.passes import Source, has_state
from expkit.data.plan import layout_of, padding_weights, share_of, step_size
from expkit.data.randomness import begin_collate, reading, seeds_at


@final
class Stream:
    """A set of samples without length: an object with ``__iter__``, or a generator function.

    Torch's and Paddle's IterableDataset are such, and a Hugging Face IterableDataset. Its order is
    its own. Each rank reads all of it and takes its share of each step, as of any other set: it is
    not to be split by rank before. Where it has ``set_epoch(epoch)`` that is called before each
    epoch; what it draws from the global generators is a function of seed and epoch. A run resumes
    by its ``state_dict`` and ``load_state_dict``, or without these by reading again what lies
    before.

    Args:
        samples: gives them.
        collate: makes a batch from a list of samples; None = `Collate`.
        what: it is, for errors.

    Raises:
        DataError: it can be read once only.
    """

    def __init__(
        self, samples: Any, collate: CollateFunction | None = None, what: str = "the stream"
    ) -> None:
        self._samples = samples
        self._source = Source(samples, what)
        self._collate = collate or Collate()

    def named(self, what: str) -> Stream:
        """The same under a name for errors."""
        return Stream(self._samples, self._collate, what)

    def is_same(self, other: Stream) -> bool:
        """Whether both read the same object, whose state can only be that of one of them."""
        return self._samples is other._samples and has_state(self._samples)

    def train_loader(
        self,
        *,
        batch_size: int,
        global_batch_size: int | None,
        accumulate: int,
        drop_last: bool,
        rank: int,
        world_size: int,
        seed: int,
        limit_batches: int | None,
        repeats: bool,
    ) -> PassLoader:
        """Windows as `expkit.data.plan.Plan` cuts them, of an unknown number.

        Args:
            batch_size: samples per process and micro-batch.
            global_batch_size: samples per step over all ranks, in place of ``batch_size``.
            accumulate: micro-batches per step.
            drop_last: leave out the last batch of the epoch where it is not whole.
            rank: whose windows.
            world_size: how many ranks share the samples.
            seed: the run's seed.
            limit_batches: end the epoch after this many batches; None = never.
            repeats: whether each epoch is the first one.
        """
        self._check_is_whole(world_size)
        batch = global_batch_size or batch_size * world_size
        size = step_size(batch_size, global_batch_size, accumulate, world_size)
        limit = None if limit_batches is None else limit_batches * batch
        micro_batch_size = -(-size // (world_size * accumulate))
        return PassLoader(
            self._source,
            _Shares(self._collate, rank, world_size, micro_batch_size),
            size=size,
            unit=batch if drop_last else 1,
            limit=limit,
            seed=seed,
            repeats=repeats,
            signature={"samples_per_epoch": limit, "samples_per_step": size},
        )

    def eval_loader(
        self,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        limit_samples: int | None,
        in_step: bool,
    ) -> PassShardLoader:
        """Each sample once over the ranks, which share out batches.

        Args:
            batch_size: samples per process and batch.
            rank: whose batches.
            world_size: how many ranks share the samples.
            seed: of what is drawn when samples are read, the same each time.
            limit_samples: end after this many; None = never.
            in_step: whether a rank that has no batch left goes on with a sample of weight 0, as
                long as others have some.
        """
        self._check_is_whole(world_size)
        return PassShardLoader(
            self._source,
            _Shares(self._collate, rank, world_size, batch_size, in_step),
            size=batch_size * world_size,
            limit=limit_samples,
            seed=seed,
        )

    def _check_is_whole(self, world_size: int) -> None:
        if world_size > 1 and is_split(self._samples):
            raise DataError(
                f"{self._source.what} has been split by node, and each rank would train on its "
                "share of a part; allowed: the whole stream, of which each rank takes its share"
            )


@final
class _Shares:
    """Cuts the samples of a step, and makes batches of those that are this rank's."""

    def __init__(
        self,
        collate: CollateFunction,
        rank: int,
        world_size: int,
        batch_size: int,
        in_step: bool = False,
    ) -> None:
        self._collate = collate
        self._rank, self._world_size = rank, world_size
        self._batch_size = batch_size
        self._in_step = in_step

    def count(self, items: list[Any]) -> int:
        """All of them."""
        return len(items)

    def window(self, items: list[Any], first: int, key: int) -> Window:
        """As `expkit.data.plan.Plan` cuts it; the repeat of a short share is one of its step."""
        rank, ranks, weight = self._rank, self._world_size, len(items)
        layout = layout_of(weight, rank, ranks, self._batch_size)
        places, _ = share_of(weight, rank, ranks)
        batches = [
            self._batch(items, places[start:stop], first, key, is_padded)
            for start, stop, is_padded in layout.micro_batches
        ]
        return Window(batches, float(weight))

    def batch(self, items: list[Any], first: int, key: int) -> Batch | None:
        """A batch that a rank alone would have; the last ones may be left without."""
        start = self._rank * self._batch_size
        places = np.arange(start, min(start + self._batch_size, len(items)), dtype=np.int64)
        if len(places):
            return self._batch(items, places, first, key, is_padded=False)
        if self._in_step:
            return self._batch(items, np.zeros(1, np.int64), first, key, is_padded=True)
        return None

    def _batch(
        self, items: list[Any], places: Indices, first: int, key: int, is_padded: bool
    ) -> Batch:
        indices = places + first
        fields = self._collated([items[place] for place in places.tolist()], indices, key)
        return Batch(fields, indices, padding_weights(len(places)) if is_padded else None)

    def _collated(self, samples: list[Any], indices: Indices, key: int) -> Mapping[str, Any]:
        try:
            if isinstance(self._collate, Collate):
                return self._collate(samples)
            seeds = seeds_at(key, indices)
            with reading(seeds):
                begin_collate(seeds)
                fields = self._collate(samples)
        except Exception as error:
            name = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
            raise DataError(
                f"samples {indices[0]} to {indices[-1]} cannot be collated: {name}{error}"
            ) from error
        return fields
