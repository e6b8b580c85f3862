"""Samples of like length in one step, in another order each epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset
from expkit.data.permutation import Permutation, keyed_permutation
from expkit.data.sampler import Sampler, checked_count, checked_seed
from expkit.data.values import By, as_numbers, checked_by, lengths_by

log = logging.getLogger(__name__)


@final
class Bucketed(Sampler):
    """Puts samples of like length into one step: less padding, and still another order each epoch.

    The samples are sorted by length once and cut into buckets of ``batches_per_bucket`` batches; a
    batch, here, is all the samples of an optimizer step, over all ranks and micro-batches. In each
    epoch the samples of each bucket are shuffled, and then the batches. What fills no batch comes
    last, from a bucket drawn anew each epoch.

    So the samples of a step lie within ``batches_per_bucket * (samples of a step)`` neighbours in
    the sorted order, and no rank's share is closer than that: which rank reads a sample must not
    decide where it stands. With W times the samples in a step, ``batches_per_bucket`` / W keeps
    lengths as close as they were.

    Args:
        by: name of a field: its value where it is a number, else its length; or a function from a
            sample (fields by name) to a number. Samples that do not lie in memory as arrays are
            read once each before training begins, one by one; ``lengths`` saves that.
        lengths: the length of each sample, in place of ``by``.
        batches_per_bucket: more shuffles better, fewer pads less.
        seed: of the order; None = the run's seed.

    Raises:
        ConfigError: both or neither of ``by`` and ``lengths``, or a number that is none.
    """

    def __init__(
        self,
        by: By | None = None,
        lengths: Sequence[float] | NDArray[Any] | None = None,
        batches_per_bucket: int = 100,
        seed: int | None = None,
    ) -> None:
        if (by is None) == (lengths is None):
            both = "both are given" if lengths is not None else "is null, and so is sampler.lengths"
            message = f"{both}; allowed: one of sampler.by and sampler.lengths"
            hint = "sampler.by=null" if lengths is not None else "sampler.by=x"
            raise ConfigError([Problem("sampler.by", message, hint)])
        self.by = None if by is None else checked_by(by)
        self.lengths = lengths
        self.batches_per_bucket = checked_count(
            "sampler.batches_per_bucket", batches_per_bucket, 100
        )
        self.seed = checked_seed(seed)

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:
        """Read the length of each sample once, and sort."""
        lengths = self._read(dataset)
        if len(lengths) > 1 and lengths.min() == lengths.max():
            log.warning(
                "sampler=bucketed is no better than sampler=random here: all %d samples have "
                "length %s",
                len(lengths),
                lengths[0],
            )
        order = np.argsort(lengths, kind="stable").astype(np.int64)
        self._buckets = _Buckets(order, step_size, self.batches_per_bucket)
        self._seed = seed if self.seed is None else self.seed
        self._latest: tuple[int, _Epoch] | None = None

    @property
    def length(self) -> int:
        """Samples in the data set."""
        return len(self._buckets.order)

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The epoch's batches, end to end, at [start, stop)."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, _Epoch(self._buckets, derive_seed(self._seed, "buckets", epoch))
        return self._latest[1].indices(start, stop)

    def _read(self, dataset: Dataset) -> NDArray[Any]:
        if self.lengths is None:
            assert self.by is not None
            return lengths_by(dataset, self.by)
        lengths = as_numbers(self.lengths, "sampler.lengths")
        if len(lengths) != len(dataset):
            raise DataError(
                f"sampler.lengths has {len(lengths)} numbers; allowed: one for each of the "
                f"{len(dataset)} samples"
            )
        return lengths


class _Buckets:
    """The samples by length, cut into batches, these into buckets.

    Args:
        order: the samples, shortest first.
        batch: samples of a batch.
        batches_per_bucket: as it says.

    Attributes:
        num_batches: the short one included.
        missing: samples that the short batch lacks; 0 where all are whole.
    """

    def __init__(self, order: Indices, batch: int, batches_per_bucket: int) -> None:
        self.order = order
        self.batch = batch
        self.batches_per_bucket = batches_per_bucket
        self.num_batches = -(-len(order) // batch)
        self.missing = self.num_batches * batch - len(order)


class _Epoch:
    """The order of one epoch.

    One batch is short, unless all are whole: the last one of a bucket that is drawn. The others
    stand in the order of a permutation, each bucket's samples too, which is drawn when the bucket's
    turn comes.
    """

    def __init__(self, buckets: _Buckets, key: int) -> None:
        self._buckets = buckets
        self._key = key
        number, size = buckets.num_batches, buckets.batches_per_bucket
        self._num_whole, self._short, self._short_bucket = number, number, number
        if buckets.missing:
            self._num_whole = number - 1
            self._short_bucket = derive_seed(key, "short") % number // size
            self._short = min((self._short_bucket + 1) * size, number) - 1
        self._batches = keyed_permutation(self._num_whole, derive_seed(key, "batches"))
        self._drawn: dict[int, Permutation] = {}

    def indices(self, start: int, stop: int) -> Indices:
        """Samples at positions [start, stop)."""
        if start == stop:
            return np.empty(0, dtype=np.int64)
        batch = self._buckets.batch
        first, last = start // batch, -(-stop // batch)
        numbers = self._batches.block(first, min(last, self._num_whole))
        numbers += numbers >= self._short
        rows = [self._samples(number) for number in numbers.tolist()]
        if last > self._num_whole:
            rows.append(self._samples(self._short))
        return np.concatenate(rows)[start - first * batch : stop - first * batch]

    def _samples(self, number: int) -> Indices:
        """The samples of a batch, by its place in the sorted order."""
        size = self._buckets.batches_per_bucket
        bucket, place = divmod(number, size)
        begin, end = self._begin(bucket), self._begin(bucket + 1)
        if bucket not in self._drawn:
            key = derive_seed(self._key, "bucket", bucket)
            self._drawn[bucket] = keyed_permutation(end - begin, key)
        first = place * self._buckets.batch
        last = min(first + self._buckets.batch, end - begin)
        return self._buckets.order[begin + self._drawn[bucket].block(first, last)]

    def _begin(self, bucket: int) -> int:
        """Where a bucket begins in the sorted order."""
        buckets = self._buckets
        whole = bucket * buckets.batches_per_bucket * buckets.batch
        return min(whole - buckets.missing * (bucket > self._short_bucket), len(buckets.order))
