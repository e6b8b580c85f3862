"""Samplers: the order of an epoch as arithmetic. No iterator, no state, so resuming is a seek."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset, column
from expkit.data.permutation import Permutation, keyed_permutation


class Sampler(ABC):
    """Gives the data-set indices at any stretch of an epoch's global order.

    All ranks see the same order and take their shares of it; what is asked before has no influence.
    A sampler of your own implements `prepare`, `length` and `indices`.
    """

    @final
    def bind(self, dataset: Dataset, seed: int, step_size: int = 1) -> Sampler:
        """A sampler for this data set; ``self`` stays as it is and can be bound again.

        Args:
            dataset: what the indices point into.
            seed: the run's seed, for samplers that were given none of their own.
            step_size: samples of an optimizer step over all ranks, for samplers that put like
                samples into one step.
        """
        bound = copy.copy(self)
        bound.prepare(dataset, seed, step_size)
        return bound

    @abstractmethod
    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:
        """Learn what the order depends on; called once, before the other two."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Positions in an epoch; the same in each epoch."""

    @abstractmethod
    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """Data-set indices at positions [start, stop) of an epoch; 0 <= start <= stop <= length."""


@final
class Sequential(Sampler):
    """The order of the data set."""

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Learn the length."""
        self._length = len(dataset)

    @property
    def length(self) -> int:
        """Samples in the data set."""
        return self._length

    def indices(self, epoch: int, start: int, stop: int) -> Indices:  # noqa: ARG002
        """start, start + 1, ..., stop - 1."""
        return np.arange(start, stop, dtype=np.int64)


@final
class Random(Sampler):
    """A keyed pseudo-random permutation in each epoch, another each time; O(1) memory and seek.

    Args:
        seed: of the order; None = the run's seed.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            message = f"is {seed!r}; allowed: null or an integer of at least 0"
            raise ConfigError([Problem("sampler.seed", message, "sampler.seed=0")])
        self.seed = seed

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Learn length and seed."""
        self._length = len(dataset)
        self._seed = seed if self.seed is None else self.seed
        self._latest: tuple[int, Permutation] | None = None

    @property
    def length(self) -> int:
        """Samples in the data set."""
        return self._length

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The permutation of (seed, epoch) at [start, stop)."""
        if self._latest is None or self._latest[0] != epoch:
            key = derive_seed(self._seed, "sampler", epoch)
            self._latest = epoch, keyed_permutation(self._length, key)
        return self._latest[1].block(start, stop)


@final
class Sorted(Sampler):
    """By a value of each sample, the same in each epoch; equal values keep the data set's order.

    Args:
        by: name of a field with one number per sample, or a function from a sample (fields by name)
            to a number.
        descending: greatest first.
    """

    def __init__(
        self, by: str | Callable[[Mapping[str, Any]], float], descending: bool = False
    ) -> None:
        self.by = by
        self.descending = descending

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Read the value of each sample once, and sort."""
        values = self._values(dataset)
        if self.descending:  # reversed twice, so that equal values keep their order
            order = len(values) - 1 - np.argsort(values[::-1], kind="stable")[::-1]
        else:
            order = np.argsort(values, kind="stable")
        self._order: Indices = order.astype(np.int64)

    @property
    def length(self) -> int:
        """Samples in the data set."""
        return len(self._order)

    def indices(self, epoch: int, start: int, stop: int) -> Indices:  # noqa: ARG002
        """The sorted order at [start, stop)."""
        return self._order[start:stop].copy()

    def _values(self, dataset: Dataset) -> NDArray[Any]:
        if isinstance(self.by, str):
            values = column(dataset, self.by)
        else:
            one_by_one = (np.array([i], dtype=np.int64) for i in range(len(dataset)))
            values = np.array([self.by(_only(dataset.fetch(i))) for i in one_by_one])
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise DataError(
                f"sampler.by={self.by!r} gives {values.dtype} values of shape {values.shape[1:]}; "
                "allowed: one number per sample"
            )
        if np.isnan(values).any():
            where = int(np.flatnonzero(np.isnan(values))[0])
            raise DataError(f"sampler.by={self.by!r} is NaN at sample {where}; it cannot be sorted")
        return values


def _only(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a batch of one, without the axis of samples."""
    return {name: value[0] for name, value in fields.items() if value is not None}
