"""Batches that a loader of the user's own makes, as they come."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from expkit.core.batch import Batch, Indices, Window
from expkit.core.errors import DataError
from expkit.data.collate import as_array, named_fields
from expkit.data.own.frameworks import (
    keeps_workers,
    length_of,
    parts_of,
    reader_of,
    replicas_of,
)
from expkit.data.own.pass_loader import PassLoader, PassShardLoader
from expkit.data.own.passes import Source, has_state
from expkit.data.plan import padding_weights, share_of

log = logging.getLogger(__name__)


@final
class OwnLoader:
    """Ready batches: a torch or Paddle DataLoader, a StatefulDataLoader, or any iterable of them.

    Each batch is a micro-batch as it comes: a dict, or a tuple whose fields are then called ``x``,
    ``y``, ``field2``, ...; its size is the loader's own, and so is its order. ``set_epoch(epoch)``
    is called before each epoch on the loader, its data set, its sampler and its batch sampler,
    where they have it; what they draw from the global generators, or from a torch generator of
    their own, is a function of seed and epoch. A run resumes by the loader's ``state_dict`` and
    ``load_state_dict``, or without these by reading again what lies before.

    With several ranks each takes its share of every batch. A loader whose sampler is the
    framework's distributed one gives each rank its own batches.

    Args:
        loader: gives the batches; or a generator function that does.
        what: it is, for errors.

    Raises:
        DataError: it can be read once only.
    """

    def __init__(self, loader: Any, what: str = "the loader") -> None:
        self._loader = loader
        self._what = what
        self._source = Source(
            loader,
            what,
            "batches",
            parts=parts_of(loader),
            read=reader_of(loader),
            convert=_on_the_host,
        )

    def named(self, what: str) -> OwnLoader:
        """The same under a name for errors."""
        return OwnLoader(self._loader, what)

    def is_same(self, other: OwnLoader) -> bool:
        """Whether both read the same object, whose state can only be that of one of them."""
        return self._loader is other._loader and has_state(self._loader)

    def close(self) -> None:
        """End its workers; it can be read again."""
        self._source.close()

    def train_loader(
        self,
        *,
        accumulate: int,
        rank: int,
        world_size: int,
        seed: int,
        limit_batches: int | None,
        repeats: bool,
    ) -> PassLoader:
        """Windows of ``accumulate`` batches each, the last one of what is left.

        Args:
            accumulate: batches per step.
            rank: whose windows.
            world_size: how many ranks share the samples.
            seed: the run's seed.
            limit_batches: end the epoch after this many batches; None = never.
            repeats: whether each epoch is the first one.
        """
        replicas = replicas_of(self._loader, rank, world_size, self._what)
        if keeps_workers(self._loader):
            log.info(
                "%s: persistent_workers is left out: its workers begin anew with each epoch, so "
                "that an epoch does not depend on those before it",
                self._what,
            )
        number = length_of(self._loader)
        if number is not None and limit_batches is not None:
            number = min(number, limit_batches)
        batch_size = getattr(self._loader, "batch_size", None)
        samples = batch_size * accumulate * replicas if isinstance(batch_size, int) else None
        return PassLoader(
            self._source,
            _Batches(rank, world_size, replicas),
            size=accumulate,
            limit=limit_batches,
            seed=seed,
            repeats=repeats,
            steps_per_epoch=None if number is None else -(-number // accumulate),
            signature={
                "samples_per_epoch": None,
                "samples_per_step": samples,
                "batches_per_epoch": number,
                "batches_per_step": accumulate,
                "replicas": replicas,
            },
        )

    def eval_loader(
        self,
        *,
        rank: int,
        world_size: int,
        seed: int,
        limit_batches: int | None,
        in_step: bool,
    ) -> PassShardLoader:
        """Each sample once over the ranks, which share out the batches.

        Args:
            rank: whose batches.
            world_size: how many ranks share them.
            seed: of what is drawn when they are made, the same each time.
            limit_batches: end after this many over all ranks; None = never.
            in_step: whether a rank that has no batch left goes on with a sample of weight 0, as
                long as others have some.
        """
        if replicas_of(self._loader, rank, world_size, self._what) > 1:
            raise DataError(
                f"{self._what} has a distributed sampler, which gives some samples twice so that "
                "all ranks have equally many, and an evaluation counts each once; allowed: a "
                "loader without it, whose batches the ranks share"
            )
        return PassShardLoader(
            self._source,
            _Batches(rank, world_size, 1, in_step),
            size=world_size,
            limit=limit_batches,
            seed=seed,
        )


@final
class _Batches:
    """Makes windows of batches that are there.

    Args:
        rank: whose windows.
        world_size: how many ranks share the samples.
        replicas: among how many ranks the loader itself shares them out.
        in_step: whether a rank without a batch gets one of weight 0.
    """

    def __init__(self, rank: int, world_size: int, replicas: int, in_step: bool = False) -> None:
        self._rank, self._world_size = rank, world_size
        self._replicas = replicas
        self._in_step = in_step

    def count(self, items: list[_HostBatch]) -> int:
        """The samples of all batches."""
        return sum(batch.size for batch in items)

    def window(self, items: list[_HostBatch], first: int, key: int) -> Window:  # noqa: ARG002
        """The batches as they are, or this rank's share of each."""
        batches, weight = [], 0
        for item in items:
            batches.append(self._share(item, first + weight))
            weight += item.size
        return Window(batches, float(weight * self._replicas))

    def batch(self, items: list[_HostBatch], first: int, key: int) -> Batch | None:  # noqa: ARG002
        """The batch that is this rank's; the last ones may be left without."""
        if self._rank < len(items):
            return _whole(items[self._rank], first + self.count(items[: self._rank]))
        return _part(items[0], first, np.zeros(1, np.int64), True) if self._in_step else None

    def _share(self, batch: _HostBatch, first: int) -> Batch:
        ranks = self._world_size // self._replicas
        if ranks == 1:
            return _whole(batch, first)
        return _part(batch, first, *share_of(batch.size, self._rank, ranks))


class _HostBatch(NamedTuple):
    """What a loader gave, and how many samples it is."""

    fields: dict[str, Any]
    size: int


def _whole(batch: _HostBatch, first: int) -> Batch:
    return Batch(batch.fields, np.arange(first, first + batch.size, dtype=np.int64))


def _part(batch: _HostBatch, first: int, places: Indices, is_padded: bool) -> Batch:
    """Some samples of a batch, the last one perhaps a repeat of weight 0."""
    fields = {name: _rows(value, places, batch.size) for name, value in batch.fields.items()}
    return Batch(fields, places + first, padding_weights(len(places)) if is_padded else None)


def _on_the_host(batch: Any) -> _HostBatch:
    """The fields of a batch by name, as arrays and lists, of which arrays tell the size.

    Raises:
        DataError: they do not agree in it, or there is none.
    """
    fields = {name: _host(value) for name, value in named_fields(batch).items()}
    sizes = dict(_sizes(fields, ""))
    if len(set(sizes.values())) == 1 and min(sizes.values()) > 0:
        return _HostBatch(fields, next(iter(sizes.values())))
    shown = ", ".join(f"{path}: {size}" for path, size in sizes.items()) or "no arrays"
    raise DataError(
        f"a batch has {shown}; allowed: fields with the sample as first axis, equally many in all "
        "of them, and at least 1"
    )


def _host(value: Any) -> Any:
    """Arrays in place of tensors and of lists of numbers, at any depth."""
    if isinstance(value, Mapping):
        return {key: _host(item) for key, item in value.items()}
    if isinstance(value, tuple):
        parts = [_host(item) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if _is_container(value):
        return [_host(item) for item in value]
    array = as_array(value)
    return value if array is None else array


def _sizes(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """The first axis of each array by its path; a number has none, which is 0."""
    if isinstance(value, np.ndarray):
        yield path, len(value) if value.ndim else 0
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _sizes(item, f"{path}.{name}".removeprefix("."))
    elif isinstance(value, tuple) or _is_container(value):
        for place, item in enumerate(value):
            yield from _sizes(item, f"{path}.{place}")


def _rows(value: Any, places: Indices, size: int) -> Any:
    """These rows of each array, and items of each list that has one for each sample."""
    if isinstance(value, np.ndarray):
        return value[places]
    if isinstance(value, Mapping):
        return {name: _rows(item, places, size) for name, item in value.items()}
    if isinstance(value, tuple):
        parts = [_rows(item, places, size) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if _is_container(value):
        return [_rows(item, places, size) for item in value]
    is_per_sample = isinstance(value, list) and len(value) == size
    return [value[place] for place in places] if is_per_sample else value


def _is_container(value: Any) -> bool:
    """Whether a list holds fields, and not a sample in each of its places."""
    return isinstance(value, list) and any(
        hasattr(item, "dtype") or isinstance(item, Mapping | tuple) for item in value
    )
