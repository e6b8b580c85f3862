"""The training set as its user knows it, for what the user has made to work on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from expkit.data.dataset import ArrayDataset, Dataset, ItemDataset
from expkit.data.ragged import Ragged
from expkit.data.table import TableDataset


def as_given(dataset: Dataset) -> Any:
    """The object that a data set was made of, whose length is the number of samples.

    That is a list, or the user's own data set, one of torch, Paddle or Hugging Face; arrays in
    memory are `Columns`. Several sets are their `ConcatDataset`.
    """
    if isinstance(dataset, ArrayDataset):
        return Columns(dataset.arrays)
    if isinstance(dataset, ItemDataset):
        return dataset.items
    return dataset.table if isinstance(dataset, TableDataset) else dataset


@final
class Columns:
    """A dict of arrays that counts its samples: ``columns["y"]``, ``columns[3]``, ``len(columns)``.

    Args:
        arrays: the columns by name.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = dict(arrays)

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, key: Any) -> Any:
        """A column by its name; or a sample, or several, by index: fields by name."""
        if isinstance(key, str):
            return self._arrays[key]
        return {name: _rows(array, key) for name, array in self._arrays.items()}

    def __iter__(self) -> Iterator[Any]:
        """Sample by sample, as indices count them."""
        return (self[index] for index in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def keys(self) -> list[str]:
        """The names of the columns."""
        return list(self._arrays)

    def values(self) -> list[Any]:
        """The columns."""
        return list(self._arrays.values())

    def items(self) -> list[tuple[str, Any]]:
        """The columns with their names."""
        return list(self._arrays.items())


def _rows(array: Any, key: Any) -> Any:
    """Rows of a column; one of a `Ragged` is as long as it is."""
    if not isinstance(array, Ragged):
        return array[key]
    indices = np.arange(len(array))[key]
    return array.take(np.atleast_1d(indices))[0][0 if np.ndim(indices) == 0 else slice(None)]
