"""A sampler of the user's own, of torch's or Paddle's kind: what it gives in turn is the order."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset
from expkit.data.own.frameworks import chain_of, is_of_framework, length_of, replicas
from expkit.data.own.given import as_given
from expkit.data.own.passes import begin_epoch
from expkit.data.randomness import seeded
from expkit.data.sampler import Random, Sampler

_COLLECTIONS = (list, tuple, set, dict, str, bytes, np.ndarray)
"""What is no sampler, though it can be iterated over."""
_HOLD_DATA = ("data_source", "dataset")
"""What samplers call the data set that they are made for."""


@final
class OwnSampler(Sampler):
    """The order that an iterable of indices gives, or the batches of one that gives lists of them.

    An epoch is drawn at once, the same on all ranks, and they share it out; a distributed sampler
    is refused. ``set_epoch(epoch)`` is called where there is one. What is drawn from the global
    generators, or from a torch generator of its own, is a function of seed and epoch. Only the
    frameworks' samplers are known to draw from nothing else: any other is asked for all epochs in
    turn, from a copy of what was given, so that its order is a function of seed and epoch too.

    Args:
        sampler: the iterable, or a function that makes it (``_partial_: true``); that gets the
            training set, as `as_given` has it, where it wants a ``data_source`` or ``dataset`` and
            has none. What it takes its indices from, its ``sampler``, may be such a function too.

    Raises:
        ConfigError: it is neither.
    """

    def __init__(self, sampler: Any) -> None:
        if isinstance(sampler, _COLLECTIONS) or not (_is_iterable(sampler) or callable(sampler)):
            message = (
                f"is a {type(sampler).__name__}; allowed: a subclass of expkit.data.Sampler, or a "
                "sampler or batch sampler of torch's or Paddle's kind"
            )
            raise ConfigError([Problem("sampler", message, "sampler=random")])
        self._given = sampler

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Draw the first epoch."""
        self._dataset, self._source = dataset, as_given(dataset)
        self._seed = seed
        self._begin()
        self._go_to(0)
        self._length = len(self._order)
        if not self._length:
            raise DataError(f"sampler {self._name} gave nothing; allowed: at least 1 index")

    @property
    def is_batched(self) -> bool:
        """Whether it is a batch sampler."""
        return self._sizes is not None

    @property
    def num_batches(self) -> int | None:
        """How many batches a batch sampler says that it has; None where it does not say."""
        return length_of(self._sampler)

    @property
    def length(self) -> int:
        """Indices in the first epoch, and in any other unless it gives batches."""
        return self._length

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The order of an epoch at [start, stop)."""
        self._go_to(epoch)
        return self._order[start:stop].copy()

    def batches(self, epoch: int) -> list[Indices]:
        """The batches of an epoch."""
        self._go_to(epoch)
        sizes = [len(self._order)] if self._sizes is None else self._sizes
        return np.split(self._order, np.cumsum(sizes)[:-1])

    @property
    def _name(self) -> str:
        return type(self._sampler).__name__

    def _begin(self) -> None:
        """Have a sampler that has drawn nothing."""
        if _is_iterable(self._given):
            whole = self._with_parts(self._given)
            self._sampler = whole if is_of_framework(whole) else self._copy(whole)
        else:
            self._sampler = self._made(self._given)
        if not _is_iterable(self._sampler):
            message = (
                f"{_described(self._given)} gave {self._sampler!r}; allowed: an iterable of "
                "indices, or of lists of them"
            )
            raise ConfigError([Problem("sampler", message, "sampler=random")])
        number = replicas(self._sampler)
        if number > 1:
            message = (
                f"{self._name} shares the samples out to {number} ranks, which expkit does itself; "
                "allowed: a sampler of the whole order, the same on all ranks"
            )
            raise ConfigError([Problem("sampler", message, "sampler=random")])
        self._epoch = -1

    def _made(self, function: Any) -> Any:
        """What a function makes, and before that what it is to take its indices from."""
        names = _parameters(function)
        bound = dict(getattr(function, "keywords", {}))
        data = {}
        if "sampler" in bound:
            data["sampler"] = self._part(bound["sampler"])
        else:
            wanted = [name for name in _HOLD_DATA if name in names and name not in bound]
            data = dict.fromkeys(wanted, self._source)
        try:
            return function(**data)
        except Exception as error:
            message = f"cannot be made: {type(error).__name__}: {error}"
            raise ConfigError([Problem("sampler", message)]) from error

    def _with_parts(self, sampler: Any) -> Any:
        """The sampler, with what it takes its indices from made where that is a function."""
        inner = getattr(sampler, "sampler", None)
        part = None if inner is None else self._part(inner)
        if part is inner:
            return sampler
        whole = copy.copy(sampler)
        whole.sampler = part
        return whole

    def _part(self, inner: Any) -> Any:
        """What a sampler takes its indices from, made where it is a function."""
        is_made = _is_iterable(inner) or not callable(inner)
        return self._with_parts(inner) if is_made else self._made(inner)

    def _copy(self, sampler: Any) -> Any:
        """A copy that shares the data set, which a sampler may hold."""
        held = [self._dataset, self._source]
        held += [getattr(sampler, name, None) for name in _HOLD_DATA]
        shared = {id(each): each for each in held if each is not None}
        try:
            return copy.deepcopy(sampler, shared)
        except Exception as error:
            message = (
                f"{type(sampler).__name__} cannot be copied ({type(error).__name__}: {error}), "
                "so its order would depend on what was asked before; allowed: the function that "
                "makes it (in a config: _partial_: true)"
            )
            raise ConfigError([Problem("sampler", message)]) from error

    def _go_to(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        if is_of_framework(self._sampler):
            self._draw(epoch)
            return
        if epoch < self._epoch:
            self._begin()
        for each in range(self._epoch + 1, epoch + 1):
            self._draw(each)

    def _draw(self, epoch: int) -> None:
        with seeded(derive_seed(self._seed, "sampler", epoch)):
            for part in chain_of(self._sampler):
                begin_epoch(part, self._seed, epoch)
            given = self._drawn()
        batches = [_indices(batch, self._name) for batch in given if _is_batch(batch)]
        if not batches:
            self._order, self._sizes = _indices(given, self._name), None
        elif len(batches) == len(given) and all(map(len, batches)):
            self._order = np.concatenate(batches)
            self._sizes = np.array([len(batch) for batch in batches])
        else:
            raise DataError(
                f"sampler {self._name} gave lists and numbers, or an empty list, in epoch "
                f"{epoch + 1}; allowed: indices, or lists of at least 1"
            )
        if epoch and self._sizes is None and len(self._order) != self._length:
            raise DataError(
                f"sampler {self._name} gave {len(self._order)} indices in epoch {epoch + 1} and "
                f"{self._length} in the first; allowed: equally many in each"
            )
        self._epoch = epoch

    def _drawn(self) -> list[Any]:
        try:
            return list(iter(self._sampler))  # not asking for a length, which may be wrong
        except Exception as error:
            message = f"sampler {self._name} failed: {type(error).__name__}: {error}"
            raise DataError(message) from error


def as_sampler(given: Any) -> Sampler:
    """A sampler from what a user gives; None = `Random` with the run's seed."""
    if given is None:
        return Random()
    return given if isinstance(given, Sampler) else OwnSampler(given)


def _is_iterable(value: Any) -> bool:
    """Whether it can be iterated over; a class cannot, whatever its objects can."""
    return hasattr(type(value), "__iter__")


def _described(function: Any) -> str:
    """Its name, or that of what a partial calls."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _parameters(function: Any) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have none
        return ()


def _is_batch(value: Any) -> bool:
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) == 1


def _indices(values: Any, name: str) -> Indices:
    """Integers, of which a framework's may be tensors."""
    try:
        array: NDArray[Any] = np.array([value.__index__() for value in values], dtype=np.int64)
    except (AttributeError, TypeError) as error:
        raise DataError(f"sampler {name} gave {error}; allowed: integers") from error
    return array
