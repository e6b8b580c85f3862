"""Data sets: anything with a length from which samples are fetched by index, many at a time."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices, listed
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.collate import IDENTITY, Collate, as_array, field_names
from expkit.data.ragged import Ragged, check_masks_beside
from expkit.data.randomness import (
    begin_collate,
    begin_sample,
    reading,
    seeds_at,
    seeds_being_read,
)
from expkit.data.table import TableDataset, is_table

CollateFunction = Callable[[Sequence[Any]], Mapping[str, Any]]
Column = NDArray[Any] | Ragged


@runtime_checkable
class Dataset(Protocol):
    """Samples by index; your own has these, or ``__getitem__`` in place of ``fetch``."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Indices) -> Mapping[str, Any]:
        """The fields of these samples; the first axis of each array is the sample."""


@final
class ArrayDataset:
    """Arrays in memory, or memory-mapped; one row each is a sample.

    Args:
        arrays: field name -> array, framework tensor or list, all of one length. Text becomes a
            list in a batch. Rows of different lengths: `Ragged`.

    Attributes:
        arrays: the columns as NumPy arrays (text: object arrays), or `Ragged`.
        draws: False, reading draws no random numbers.
    """

    draws = False

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not arrays:
            raise DataError("a data set of arrays has no field; allowed: field name -> array")
        self.arrays: dict[str, Any] = {name: _column(name, value) for name, value in arrays.items()}
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise DataError(f"the fields of a data set differ in length ({shown})")
        self._length = next(iter(lengths.values()))
        ragged = {name: each for name, each in self.arrays.items() if isinstance(each, Ragged)}
        check_masks_beside(self.arrays, ragged)
        self._is_even = not ragged
        self._texts = [
            name
            for name, each in self.arrays.items()
            if name not in ragged and each.dtype.kind == "O"
        ]

    def __len__(self) -> int:
        return self._length

    @property
    def is_even(self) -> bool:
        """Whether all rows are equally long: those of several batches can be read at once."""
        return self._is_even

    @property
    def is_in_memory(self) -> bool:
        """Whether no column is a memory-mapped file."""
        columns = self.arrays.values()
        return not any(
            _is_mapped(each.values if isinstance(each, Ragged) else each) for each in columns
        )

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample in a batch; of a ragged row, none."""
        return sum(
            array.itemsize * array[:1].size
            for array in self.arrays.values()
            if not isinstance(array, Ragged)
        )

    def fetch(self, indices: Indices) -> dict[str, Any]:
        """Copies of these rows; ragged ones are as long as the longest of them."""
        fields: dict[str, Any] = {}
        for name, array in self.arrays.items():
            if isinstance(array, Ragged):
                fields[name], is_real = array.take(indices)
                if array.pad.mask is not None:
                    fields[array.pad.mask] = is_real
            else:
                fields[name] = array.take(indices, axis=0)
        for name in self._texts:
            fields[name] = fields[name].tolist()
        return fields


@final
class ItemDataset:
    """Samples one by one: a list, or any object with ``__len__`` and ``__getitem__``.

    Args:
        items: the samples; ``__getitems__(list of indices)`` is used where the object has it.
        collate: makes the fields of a batch from a list of samples.

    Attributes:
        items: the samples.
        draws: whether reading may draw random numbers. Each sample is read with seeds of its own
            (`expkit.data.randomness`), those that are read many at once with those of the first.
    """

    def __init__(self, items: Any, collate: CollateFunction | None = None) -> None:
        self.items = items
        self._collate = collate or Collate()
        self._get_many = items.__getitems__ if _reads_many(items) else None
        self.draws = not (type(items) in (list, tuple) and isinstance(self._collate, Collate))

    def __len__(self) -> int:
        return len(self.items)

    def fetch(self, indices: Indices) -> Mapping[str, Any]:
        """These samples, collated.

        Raises:
            DataError: a sample that cannot be read, with its index; or samples that do not fit
                together.
        """
        if self.draws and seeds_being_read() is None:
            with reading(seeds_at(0, indices)):
                return self.fetch(indices)
        numbers = indices.tolist()
        seeds = seeds_being_read() if self.draws else None
        samples = self._read(numbers, seeds)
        if seeds is not None:
            begin_collate(seeds)
        try:
            return self._collate(samples)
        except Exception as error:
            what = str(error) if isinstance(error, DataError) else _named(error)
            raise DataError(f"samples {listed(numbers)} cannot be collated: {what}") from error

    def _read(self, numbers: list[int], seeds: Indices | None) -> list[Any]:
        if self._get_many is not None:
            try:
                return list(self._get_many(numbers))
            except Exception as error:
                message = f"samples {listed(numbers)} cannot be read: {_named(error)}"
                raise DataError(message) from error
        samples = []
        for place, number in enumerate(numbers):
            if seeds is not None:
                begin_sample(seeds, place)
            try:
                samples.append(self.items[number])
            except Exception as error:
                raise DataError(f"sample {number} cannot be read: {_named(error)}") from error
        return samples


def draws(dataset: Dataset) -> bool:
    """Whether reading a data set may draw random numbers: unless it says that it does not."""
    return bool(getattr(dataset, "draws", True))


def as_dataset(source: Any, collate: CollateFunction | None = None) -> Dataset:
    """A data set from what a user has.

    Args:
        source: a `Dataset`; a dict of arrays; a tuple of arrays (fields ``x``, ``y``, ``field2``,
            ...); a list of samples; or an object with ``__len__`` and ``__getitem__``.
        collate: for samples that come one by one; see `ItemDataset`.

    Raises:
        DataError: something without a length, or a loader in place of a data set.
        ConfigError: a collate function that nothing would call.
    """
    if isinstance(source, Dataset):
        dataset: Dataset = source
    elif isinstance(source, Mapping):
        dataset = ArrayDataset(source)
    elif isinstance(source, tuple) and source and all(hasattr(part, "dtype") for part in source):
        dataset = ArrayDataset(dict(zip(field_names(len(source)), source, strict=True)))
    elif hasattr(source, "batch_sampler") and hasattr(source, "dataset"):
        raise DataError(
            f"{_kind(source)} is a loader; allowed: the data set that it reads, a "
            f"{_kind(source.dataset)}"
        )
    elif is_table(source) and (collate is None or isinstance(collate, Collate)):
        return TableDataset(source, collate)
    elif hasattr(source, "__len__") and hasattr(source, "__getitem__") and not _is_text(source):
        return ItemDataset(source, collate)
    else:
        raise DataError(
            f"{_kind(source)} is no data set: samples must be counted (__len__) and found by index "
            "(__getitem__); allowed: a dict of arrays, a list, or such an object"
        )
    if collate is not None:
        message = f"has no effect: {_kind(source)} gives whole batches; allowed: null"
        raise ConfigError([Problem("data.collate", message, "data.collate=null")])
    return dataset


def is_column(value: Any) -> bool:
    """Whether a value is a field of a data set rather than a data set."""
    if hasattr(value, "dtype") or isinstance(value, Ragged):
        return True
    return isinstance(value, list) and not any(
        isinstance(item, Mapping | tuple) for item in value[:1]
    )


def _column(name: str, value: Any) -> Column:
    if isinstance(value, Ragged):
        return value
    # A list of identities is kept as it is: an array of it might round them.
    is_named = name == IDENTITY and isinstance(value, list)
    array = None if is_named and not _are_integers(value) else as_array(value, f"field {name!r}")
    if array is None:
        if not isinstance(value, Sequence | np.ndarray):
            raise DataError(f"field {name!r} is {_kind(value)}; allowed: an array, tensor or list")
        array = np.empty(len(value), dtype=object)
        for place, item in enumerate(value):
            array[place] = str(item) if isinstance(item, np.str_) else item
    if array.ndim == 0:
        raise DataError(f"field {name!r} is one number; allowed: an array with a row per sample")
    return array


def _are_integers(values: Sequence[Any]) -> bool:
    return all(type(value) is int and -(2**63) <= value < 2**63 for value in values)


def _is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def _reads_many(items: Any) -> bool:
    """Whether ``__getitems__`` is more than a loop: what wraps a data set only passes it on."""
    if not callable(getattr(items, "__getitems__", None)):
        return False
    return not hasattr(items, "indices") or _reads_many(getattr(items, "dataset", None))


def _is_text(value: Any) -> bool:
    return isinstance(value, str | bytes)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
