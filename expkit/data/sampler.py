"""Samplers: the order of an epoch as arithmetic. No iterator, no state, so resuming is a seek."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset
from expkit.data.permutation import Permutation, keyed_permutation
from expkit.data.values import By, checked_by, numbers_by


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

        Raises:
            ConfigError: its length is none.
        """
        bound = copy.copy(self)
        bound.prepare(dataset, seed, step_size)
        length: Any = bound.length
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 0:
            message = (
                f"{type(self).__name__}.length is {length!r}; allowed: an integer of at least 0, "
                "the positions in an epoch"
            )
            raise ConfigError([Problem("sampler", message, "sampler=random")])
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
        self.seed = checked_seed(seed)

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

    def __init__(self, by: By, descending: bool = False) -> None:
        self.by = checked_by(by)
        self.descending = checked_flag("sampler.descending", descending)

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Read the value of each sample once, and sort."""
        values = numbers_by(dataset, self.by)
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


def checked_seed(seed: Any) -> int | None:
    """The seed of a sampler, where it is one.

    Raises:
        ConfigError: it is none.
    """
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        message = f"is {seed!r}; allowed: null or an integer of at least 0"
        raise ConfigError([Problem("sampler.seed", message, "sampler.seed=0")])
    return seed


def checked_flag(key: str, value: Any) -> bool:
    """A switch.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, bool):
        message = f"is {value!r}; allowed: true or false"
        raise ConfigError([Problem(key, message, f"{key}=true")])
    return value


def checked_count(key: str, value: Any, example: int) -> int:
    """A count of at least 1.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"is {value!r}; allowed: an integer of at least 1"
        raise ConfigError([Problem(key, message, f"{key}={example}")])
    return value
