"""A value of each sample, by which samplers order, group or weigh: read once, before training."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, ExpkitError, Problem
from expkit.data.concat import ConcatDataset
from expkit.data.dataset import ArrayDataset, Dataset
from expkit.data.ragged import Ragged
from expkit.data.reading import read

_BLOCK = 256
By = str | Callable[[Mapping[str, Any]], float]
"""Name of a field, or a function from a sample (fields by name) to a number."""


def values_of(dataset: Dataset, name: str, key: str = "sampler.by") -> NDArray[Any]:
    """All values of one field; reads the whole data set where it is not an `ArrayDataset`.

    Args:
        dataset: whose.
        name: of the field.
        key: of the config that names it, for errors.

    Raises:
        DataError: no such field, or one that is neither numbers nor texts.
    """
    if isinstance(dataset, ArrayDataset):
        return _values(dataset.arrays, name, key)
    if isinstance(dataset, ConcatDataset):
        parts = [values_of(part, name, key) for part in dataset.parts.values()]
    else:
        parts = [_values(fields, name, key) for fields in _read_blocks(dataset)]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(
            f"{key}={name!r} has rows of different lengths; allowed: a field with one number or "
            "text per sample"
        )
    return np.concatenate(parts)


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


def checked_by(by: Any, *, takes_functions: bool = True) -> Any:
    """What samples are ordered by, where it can be that.

    Raises:
        ConfigError: it is no name, and no function where one may be.
    """
    if isinstance(by, str) or (takes_functions and callable(by)):
        return by
    also = ", or a function from a sample to a number" if takes_functions else ""
    message = f"is {by!r}; allowed: the name of a field{also}"
    raise ConfigError([Problem("sampler.by", message, "sampler.by=y")])


def as_numbers(given: Any, what: str) -> NDArray[Any]:
    """Numbers that somebody gives, one for each sample.

    Raises:
        DataError: they are none.
    """
    try:
        values = np.asarray(given)
    except Exception as error:
        raise DataError(
            f"{what} is no list of numbers ({error}); allowed: one per sample"
        ) from error
    return checked_numbers(values, what)


def checked_numbers(values: NDArray[Any], what: str) -> NDArray[Any]:
    """The values, if they are one number per sample and none is NaN.

    Raises:
        DataError: names what they are.
    """
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        is_text = values.dtype.kind in "OU" and all(isinstance(each, str) for each in values.flat)
        kind = "text" if is_text else f"{values.dtype} values"
        shape = f" of shape {values.shape[1:]}" if values.ndim > 1 else ""
        what += f" is {values}, which" if values.ndim == 0 else ""
        raise DataError(f"{what} gives {kind}{shape}; allowed: one number per sample")
    if np.isnan(values).any():
        where = int(np.flatnonzero(np.isnan(values))[0])
        raise DataError(f"{what} is NaN at sample {where}; allowed: numbers")
    return values


def _called(dataset: Dataset, by: Callable[[Mapping[str, Any]], float]) -> NDArray[Any]:
    """What a function gives for each sample."""
    found = []
    for number in range(len(dataset)):
        sample = _only(read(dataset, np.array([number], dtype=np.int64)))
        try:
            value = by(sample)
        except ExpkitError:
            raise
        except Exception as error:
            message = f"sampler.by failed at sample {number}: {type(error).__name__}: {error}"
            raise DataError(message) from error
        if not _is_number(value):
            raise DataError(
                f"sampler.by gave {reprlib.repr(value)} for sample {number}; allowed: a number "
                "that float64 can hold"
            )
        found.append(value)
    return np.array(found)


def _is_number(value: Any) -> bool:
    """Also an array or tensor that holds one."""
    if isinstance(value, int | float):
        return not abs(value) > sys.float_info.max or isinstance(value, float)
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"


def _read_blocks(dataset: Dataset) -> Iterator[Mapping[str, Any]]:
    """The fields of all samples, so many at a time."""
    for start in range(0, len(dataset), _BLOCK):
        stop = min(start + _BLOCK, len(dataset))
        yield read(dataset, np.arange(start, stop, dtype=np.int64))


def _values(fields: Mapping[str, Any], name: str, key: str) -> NDArray[Any]:
    """A column as an array; that of texts holds objects."""
    if name not in fields:
        known = ", ".join(fields)
        raise DataError(f"{key}={name!r}: the data set has no field {name!r}; allowed: {known}")
    values = fields[name]
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    raise DataError(
        f"{key}={name!r} has rows of different lengths or other objects; allowed: a field with one "
        "number or text per sample"
    )


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
