"""From samples to a batch: fields are stacked, whatever they are nested in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem

_NUMBERS = (bool, int, float)


@dataclass(frozen=True)
class Pad:
    """How a field whose samples differ in length becomes one array.

    Attributes:
        value: what stands in the added places.
        side: where they are added.
        multiple: the length becomes a multiple of this.
        mask: name of a boolean field to add, True at real values; None = none.
    """

    value: float = 0
    side: Literal["left", "right"] = "right"
    multiple: int = 1
    mask: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.side not in ("left", "right"):
            problems.append(Problem("side", f"is {self.side!r}; allowed: left, right"))
        if not isinstance(self.multiple, int) or self.multiple < 1:
            message = f"is {self.multiple!r}; allowed: an integer of at least 1"
            problems.append(Problem("multiple", message))
        value: object = self.value
        if not isinstance(value, int | float):
            problems.append(Problem("value", f"is {self.value!r}; allowed: a number"))
        if problems:
            raise ConfigError(problems)


class Collate:
    """Stacks samples into a batch.

    Arrays, framework tensors, numbers and lists of numbers become arrays with the sample as first
    axis (Python's floats as float32, its integers as int64). Dicts, tuples, named tuples and
    dataclasses are kept around them. A field that is None in each sample stays None; text and all
    other objects become a list.

    Args:
        pad: field name -> `Pad` (or a mapping of its options) for fields that vary in length; the
            name of a nested field is written with dots, ``"inputs.tokens"``.
    """

    def __init__(self, pad: Mapping[str, Pad | Mapping[str, Any]] | None = None) -> None:
        fields: Any = pad or {}
        if not isinstance(fields, Mapping):
            message = f"is a {type(pad).__name__}; allowed: names of fields with their options"
            raise ConfigError([Problem("collate.pad", message)])
        self._pad = {name: as_pad(each, f"collate.pad.{name}") for name, each in fields.items()}
        self._unseen = set(self._pad)

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """The batch of these samples; see `named_fields` for samples that are no dicts."""
        return self._checked(self._stack_mappings([named_fields(each) for each in samples], ""))

    def columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The same from fields that are read at once: name -> array, tensor or list of values."""
        return self._checked(self._stack_columns(columns, ""))

    def _checked(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._unseen:
            raise DataError(
                f"padding is configured for {', '.join(sorted(self._unseen))}, but the samples "
                f"have no such sequences; their fields: {', '.join(batch)}"
            )
        return batch

    def _stack(self, values: Any, path: str) -> Any:
        if not isinstance(values, list):
            array = as_array(values)
            if array is not None and path not in self._pad:
                return array if array.flags.writeable else array.copy()
            values = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if all(type(value) in _NUMBERS for value in values):
            return as_array(list(values))
        first = values[0]
        if any(type(value) is not type(first) for value in values):
            values = _as_one_kind(values, path)
            first = values[0]
        if first is None:
            return None
        if isinstance(first, Mapping):
            return self._stack_mappings(values, f"{path}.")
        if dataclasses.is_dataclass(first) and not isinstance(first, type):
            names = [field.name for field in dataclasses.fields(first)]
            parts = {n: self._stack([getattr(v, n) for v in values], f"{path}.{n}") for n in names}
            return dataclasses.replace(first, **parts)
        if isinstance(first, tuple):
            return self._stack_tuples(values, path)
        arrays = [as_array(value) for value in values]
        if any(array is None for array in arrays):
            return [each.tolist() if isinstance(each, np.ndarray) else each for each in values]
        return self._stack_arrays([array for array in arrays if array is not None], path)

    def _stack_mappings(self, values: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, Any]:
        names = list(values[0])
        for value in values:
            if value.keys() != values[0].keys():
                raise DataError(
                    f"samples of one batch have different fields, {names} and {list(value)}"
                )
        return self._stack_columns({n: [v[n] for v in values] for n in names}, prefix)

    def _stack_columns(self, columns: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        batch = {n: self._stack(values, f"{prefix}{n}") for n, values in columns.items()}
        for name, values in columns.items():
            pad = self._pad.get(f"{prefix}{name}")
            if pad is not None and pad.mask is not None:
                batch[pad.mask] = _mask(values, batch[name].shape[1], pad.side)
        return batch

    def _stack_tuples(self, values: Sequence[Any], path: str) -> Any:
        first = values[0]
        if len({len(value) for value in values}) > 1:
            raise DataError(f"field {path!r} has tuples of different lengths in one batch")
        parts = [
            self._stack([value[i] for value in values], f"{path}.{i}") for i in range(len(first))
        ]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)

    def _stack_arrays(self, arrays: Sequence[NDArray[Any]], path: str) -> NDArray[Any]:
        pad = self._pad.get(path)
        if pad is not None:
            self._unseen.discard(path)
            return _padded(arrays, pad, path)
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            raise DataError(
                f"field {path!r} has samples of different shapes, {shapes[0]} and {shapes[-1]}, "
                "and no padding is configured; allowed: equal shapes, or "
                f"collate=Collate(pad={{{path!r}: Pad(value=0)}})"
            )
        return np.stack(arrays)


def as_pad(options: Any, key: str) -> Pad:
    """A `Pad` from a mapping of its options.

    Args:
        options: those, or a `Pad`.
        key: where they come from, for errors.

    Raises:
        ConfigError: options that it does not have, or that cannot be.
    """
    if isinstance(options, Pad):
        return options
    known = [field.name for field in dataclasses.fields(Pad)]
    if not isinstance(options, Mapping):
        message = f"is {options!r}; allowed: a mapping with the keys {', '.join(known)}"
        raise ConfigError([Problem(key, message)])
    problems = [
        Problem(f"{key}.{name}", f"is no option of padding; allowed: {', '.join(known)}")
        for name in options
        if name not in known
    ]
    if problems:
        raise ConfigError(problems)
    try:
        return Pad(**options)
    except ConfigError as error:
        named = [Problem(f"{key}.{each.key}", each.message) for each in error.problems]
        raise ConfigError(named) from None


def named_fields(sample: Any) -> Mapping[str, Any]:
    """The fields of a sample by name.

    Dicts, named tuples and dataclasses bring their names; a plain tuple, and a list with an array
    in it, give ``x``, ``y``, ``field2``, ...; anything else is ``x``.
    """
    if isinstance(sample, Mapping):
        return sample
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
    if isinstance(sample, tuple):
        names = getattr(sample, "_fields", None) or field_names(len(sample))
        return dict(zip(names, sample, strict=True))
    if isinstance(sample, list) and any(hasattr(part, "dtype") for part in sample):
        return dict(zip(field_names(len(sample)), sample, strict=True))
    return {"x": sample}


def field_names(count: int) -> list[str]:
    """Names for fields that come without: x, y, field2, field3, ..."""
    return ["x", "y", *(f"field{i}" for i in range(2, count))][:count]


def as_array(value: Any) -> NDArray[Any] | None:
    """An array from an array, a tensor, a number or a list of numbers; None for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif isinstance(value, bool | int | float | complex | list):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            return None
        if array.dtype == np.float64:
            array = array.astype(np.float32)
    elif hasattr(value, "numpy"):
        for step in ("detach", "cpu"):  # of tensors that have a gradient or live on a device
            value = getattr(value, step)() if hasattr(value, step) else value
        array = np.asarray(value.numpy())
    elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
    else:
        return None
    return array if array.dtype.kind in "biufcV" else None


def _as_one_kind(values: Sequence[Any], path: str) -> Sequence[Any]:
    """Values of different types: arrays where each can be one, as they are where none can."""
    arrays = [as_array(value) for value in values]
    if all(array is not None for array in arrays):
        return arrays
    missing = [i for i, value in enumerate(values) if value is None]
    if missing:
        raise DataError(
            f"field {path!r} is None in {len(missing)} of the {len(values)} samples of a batch, "
            f"first at place {missing[0]}; allowed: None in all of them, or in none"
        )
    if all(array is None for array in arrays):
        return values
    kinds = sorted({type(value).__name__ for value in values})
    raise DataError(
        f"field {path!r} has values of different types in one batch: {', '.join(kinds)}"
    )


def _padded(arrays: Sequence[NDArray[Any]], pad: Pad, path: str) -> NDArray[Any]:
    if len({array.shape[1:] for array in arrays}) > 1 or arrays[0].ndim == 0:
        shapes = sorted({array.shape for array in arrays})
        raise DataError(
            f"field {path!r} cannot be padded: shapes {shapes[0]} and {shapes[-1]}; allowed: "
            "sequences that differ in their first axis only"
        )
    longest = max(len(array) for array in arrays)
    length = -(-longest // pad.multiple) * pad.multiple
    dtype = np.result_type(*arrays)
    batch = np.full((len(arrays), length, *arrays[0].shape[1:]), pad.value, dtype=dtype)
    for row, array in zip(batch, arrays, strict=True):
        if pad.side == "right":
            row[: len(array)] = array
        else:
            row[length - len(array) :] = array
    return batch


def _mask(values: Sequence[Any], length: int, side: str) -> NDArray[np.bool_]:
    sizes = np.array([len(value) for value in values])[:, None]
    places = np.arange(length)[None, :]
    return places < sizes if side == "right" else places >= length - sizes
