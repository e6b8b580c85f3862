"""A value of each sample, by which samplers order, group or weigh: read once, before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import DataError
from expkit.data.concat import ConcatDataset
from expkit.data.dataset import ArrayDataset, Dataset, column
from expkit.data.ragged import Ragged
from expkit.data.reading import read

By = str | Callable[[Mapping[str, Any]], float]
"""Name of a field, or a function from a sample (fields by name) to a number."""


def values_of(dataset: Dataset, name: str) -> NDArray[Any]:
    """All values of one field; reads the whole data set where it is not an `ArrayDataset`.

    Raises:
        DataError: no such field, or one that is no array.
    """
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([values_of(part, name) for part in dataset.parts.values()])
    return column(dataset, name)


def numbers_by(dataset: Dataset, by: By) -> NDArray[Any]:
    """One number of each sample: of a field, or what a function gives for each, read alone.

    Raises:
        DataError: no such field, or something else in it.
    """
    values = values_of(dataset, by) if isinstance(by, str) else _called(dataset, by)
    return checked_numbers(values, f"sampler.by={by!r}")


def lengths_by(dataset: Dataset, by: By) -> NDArray[Any]:
    """How long each sample is: a number as it is, the length of anything else.

    Samples of a set that is no `ArrayDataset` are read one by one, for in a batch they are padded.

    Raises:
        DataError: no such field, or one without a length.
    """
    if not isinstance(by, str):
        return numbers_by(dataset, by)
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([lengths_by(part, by) for part in dataset.parts.values()])
    rows = dataset.arrays.get(by) if isinstance(dataset, ArrayDataset) else None
    if isinstance(rows, Ragged):
        return rows.lengths
    if rows is not None and rows.dtype.kind in "biuf":
        return numbers_by(dataset, by) if rows.ndim == 1 else np.full(len(rows), rows.shape[1])
    values = _called(dataset, lambda sample: _length(sample, by))
    return checked_numbers(values, f"sampler.by={by!r}")


def checked_numbers(values: NDArray[Any], what: str) -> NDArray[Any]:
    """The values, if they are one number per sample and none is NaN.

    Raises:
        DataError: names what they are.
    """
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{what} gives {values.dtype} values of shape {values.shape[1:]}; "
            "allowed: one number per sample"
        )
    if np.isnan(values).any():
        where = int(np.flatnonzero(np.isnan(values))[0])
        raise DataError(f"{what} is NaN at sample {where}; allowed: numbers")
    return values


def _called(dataset: Dataset, by: Callable[[Mapping[str, Any]], float]) -> NDArray[Any]:
    """What a function gives for each sample."""
    one_by_one = (np.array([i], dtype=np.int64) for i in range(len(dataset)))
    return np.array([by(_only(read(dataset, i))) for i in one_by_one])


def _only(value: Any) -> Any:
    """What a batch of one has of its sample, whatever it is nested in."""
    if isinstance(value, Mapping):
        return {name: _only(part) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [_only(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value[0] if hasattr(value, "__getitem__") else value


def _length(sample: Mapping[str, Any], name: str) -> float:
    if name not in sample:
        raise DataError(f"the data set has no field {name!r}; allowed: {', '.join(sample)}")
    value = sample[name]
    if isinstance(value, int | float | np.number):
        return float(value)
    try:
        return len(value)
    except TypeError:
        raise DataError(
            f"sampler.by={name!r} is a {type(value).__name__}, which has no length; allowed: "
            "numbers, texts, and sequences"
        ) from None
