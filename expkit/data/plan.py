"""Plans: from positions in an epoch to the micro-batches of a rank, by arithmetic alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import DataError
from expkit.data.sampler import Sampler

_MARK_SAMPLES = 8


class MicroBatch(NamedTuple):
    """A cut of a rank's share of a window.

    Attributes:
        start, stop: its places in the share.
        is_padded: whether its last sample is a repeat of weight 0.
    """

    start: int
    stop: int
    is_padded: bool


class Layout(NamedTuple):
    """How a rank's share of a window is cut; the same for all windows but the last.

    Attributes:
        micro_batches: the cuts, end to end.
        share: samples of this rank in the window, the repeat included.
        weight: samples that count, over all ranks.
        is_padded: whether the share ends with a repeat of weight 0.
    """

    micro_batches: tuple[MicroBatch, ...]
    share: int
    weight: int
    is_padded: bool


@final
class Plan:
    """Which samples make up each optimizer step, and which of them are this rank's.

    Step s of an epoch is the window of positions [s * G, (s + 1) * G) in the sampler's order, where
    G, the samples of a step, is ``global_batch_size``, or ``batch_size * accumulate * world_size``.
    The window's samples do not depend on the world size; rank r takes every world_size-th of them
    from the r-th on, and cuts its share into at most ``accumulate`` micro-batches. What does not
    divide is padded: a rank whose share is one short ends it with a repeat, a position counted on
    from the epoch's beginning, whose weight is 0. So all ranks have equally many samples and
    micro-batches, and none is empty. The last window is as short as the data makes it.

    Args:
        sampler: gives the order; bound to a data set.
        batch_size: samples per process and micro-batch.
        global_batch_size: samples per step over all ranks, in place of ``batch_size``.
        accumulate: micro-batches per step.
        rank: whose micro-batches.
        world_size: how many ranks share the samples.
        drop_last: leave out the last batch of the epoch where it is not whole.
        limit_batches: end the epoch after this many batches. A batch, here and above, is what all
            ranks read at once: ``batch_size * world_size`` samples, or ``global_batch_size``.

    Attributes:
        length: positions of the sampler's order that are used in an epoch.
        steps: windows in an epoch.
        window_size: samples in a whole window, over all ranks.

    Raises:
        DataError: an epoch without a step.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        batch_size: int = 1,
        global_batch_size: int | None = None,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        limit_batches: int | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}; allowed: 0 to world_size - 1 = {world_size - 1}")
        self._sampler = sampler
        self._rank, self._world_size = rank, world_size
        batch = global_batch_size or batch_size * world_size
        self.window_size = step_size(batch_size, global_batch_size, accumulate, world_size)
        ranks = 1 if global_batch_size else world_size
        self.length = _usable_length(sampler.length, batch, ranks, drop_last, limit_batches)
        self.steps = -(-self.length // self.window_size)
        size = -(-self.window_size // (world_size * accumulate))
        self._whole = layout_of(self.window_size, rank, world_size, size)
        rest = self.length - (self.steps - 1) * self.window_size
        self._last = layout_of(rest, rank, world_size, size)

    def layout(self, step: int) -> Layout:
        """How this rank's share of a window is cut."""
        return self._last if step == self.steps - 1 else self._whole

    def first_samples(self) -> list[int]:
        """The first few data-set indices of epoch 0, the same on every rank: the order's mark."""
        first = self._order(0, 0, min(self.length, _MARK_SAMPLES))
        return [int(index) for index in first]

    def indices(self, epoch: int, first: int, last: int) -> Indices:
        """Data-set indices of this rank's shares of the windows [first, last), end to end."""
        block = self._order(epoch, *self._stretch(first, last))
        return self._own(block, first, last, lambda place: self._order(epoch, place, place + 1))

    def positions(self, first: int, last: int) -> Indices:
        """Positions in the epoch's order of what `indices` gives."""
        block = np.arange(*self._stretch(first, last), dtype=np.int64)
        return self._own(block, first, last, lambda place: np.array([place], dtype=np.int64))

    def _stretch(self, first: int, last: int) -> tuple[int, int]:
        return first * self.window_size, min(last * self.window_size, self.length)

    def _own(self, block: Indices, first: int, last: int, at: Callable[[int], Indices]) -> Indices:
        """This rank's shares of a stretch of windows; a repeat is what is ``at`` its place."""
        rank, ranks, size = self._rank, self._world_size, self.window_size
        if ranks == 1:
            return block
        if size % ranks == 0 and len(block) % ranks == 0:
            return np.ascontiguousarray(block[rank::ranks])
        shares = []
        for step in range(first, last):
            begin = (step - first) * size
            shares.append(block[begin : begin + size][rank::ranks])
            layout = self.layout(step)
            if layout.is_padded:
                shares.append(at((rank - layout.weight % ranks) % self.length))
        return np.concatenate(shares)

    def _order(self, epoch: int, start: int, stop: int) -> Indices:
        indices = np.asarray(self._sampler.indices(epoch, start, stop))
        if indices.shape != (stop - start,) or indices.dtype.kind not in "iu":
            raise DataError(
                f"sampler {type(self._sampler).__name__} gave {indices.dtype} of shape "
                f"{indices.shape} for positions [{start}, {stop}); allowed: {stop - start} integers"
            )
        return indices.astype(np.int64, copy=False)


def step_size(
    batch_size: int, global_batch_size: int | None, accumulate: int, world_size: int
) -> int:
    """Samples of a whole optimizer step over all ranks; for the arguments see `Plan`."""
    return global_batch_size or batch_size * world_size * accumulate


def padding_weights(size: int) -> NDArray[np.float32]:
    """Weights of a batch whose last sample is a repeat."""
    weights = np.ones(size, dtype=np.float32)
    weights[-1] = 0.0
    return weights


def share_of(size: int, rank: int, world_size: int) -> tuple[Indices, bool]:
    """A rank's places among some samples, and whether the last is a repeat of weight 0.

    All ranks get equally many; a repeat is one of the samples.
    """
    places = np.arange(rank, size, world_size, dtype=np.int64)
    rest = size % world_size
    if not 0 < rest <= rank:
        return places, False
    return np.append(places, (rank - rest) % size), True


def shard(length: int, rank: int, world_size: int) -> range:
    """A rank's positions where each is used exactly once: 10 on 4 ranks are 3, 3, 2, 2."""
    whole, rest = divmod(length, world_size)
    start = rank * whole + min(rank, rest)
    return range(start, start + whole + (rank < rest))


def layout_of(weight: int, rank: int, world_size: int, micro_batch_size: int) -> Layout:
    """How a rank's share of a window with ``weight`` samples is cut."""
    share = -(-weight // world_size)
    is_padded = rank >= world_size - (-weight % world_size)
    starts = range(0, share, micro_batch_size)
    stops = [min(start + micro_batch_size, share) for start in starts]
    cuts = [MicroBatch(a, b, is_padded and b == share) for a, b in zip(starts, stops, strict=True)]
    return Layout(tuple(cuts), share, weight, is_padded)


def _usable_length(
    length: int, batch: int, ranks: int, drop_last: bool, limit_batches: int | None
) -> int:
    """How many positions of an epoch's order are used."""
    if length == 0:
        raise DataError("the training set is empty; allowed: at least 1 sample")
    usable = length - length % batch if drop_last else length
    if usable == 0:
        parts = f" ({batch // ranks} on each of {ranks} ranks)" if ranks > 1 else ""
        raise DataError(
            f"the training set has {length} samples, fewer than one batch of {batch}{parts}, and "
            "data.drop_last=true leaves them out; allowed: data.drop_last=false, or a batch of at "
            f"most {length}"
        )
    return usable if limit_batches is None else min(usable, limit_batches * batch)
