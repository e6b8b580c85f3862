"""From samples to a batch: fields are stacked, whatever they are nested in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.padding import Pad, as_pad, check_masks, mask_is_taken, mask_of, not_padded, padded

_NUMBERS = (bool, int, float)
_SCALARS = (bool, int, float, np.number, np.bool_)
IDENTITY = "id"
_BEYOND_INT64 = 2.0**63


class Collate:
    """Stacks samples into a batch.

    Arrays, framework tensors, numbers and lists of numbers become arrays with the sample as first
    axis (Python's floats as float32, its integers as int64). Dicts, tuples, named tuples and
    dataclasses are kept around them. A field that is None in each sample stays None; text and all
    other objects become a list. So do the numbers of a field ``id`` unless all are such integers:
    they name samples, and are not rounded.

    Args:
        pad: field name -> `Pad` (or a mapping of its options) for fields that vary in length; the
            name of a nested field is written with dots, ``"inputs.tokens"``.

    Raises:
        ConfigError: options that padding does not have, or one mask for two fields.
    """

    def __init__(self, pad: Mapping[str, Pad | Mapping[str, Any]] | None = None) -> None:
        fields: Any = pad or {}
        if not isinstance(fields, Mapping):
            message = f"is a {type(pad).__name__}; allowed: names of fields with their options"
            raise ConfigError([Problem("collate.pad", message)])
        self._pad = {name: as_pad(each, f"collate.pad.{name}") for name, each in fields.items()}
        check_masks(self._pad)
        self._unseen = set(self._pad)

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """The batch of these samples; see `named_fields` for samples that are no dicts."""
        if not samples:
            raise DataError("there is no sample to make a batch of; allowed: at least one")
        return self._checked(self._stack_mappings([named_fields(each) for each in samples], ""))

    def columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The same from fields that are read at once: name -> array, tensor or list of values."""
        return self._checked(self._stack_columns(columns, ""))

    def _checked(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._unseen:
            raise not_padded(self._unseen, batch)
        return batch

    def _stack(self, values: Any, path: str) -> Any:
        what = f"field {path!r}"
        if not isinstance(values, list):
            array = as_array(values, what)
            if array is not None and path not in self._pad:
                return array if array.flags.writeable else array.copy()
            values = _listed(values)
        if path == IDENTITY and all(isinstance(value, _SCALARS) for value in values):
            return _identities(values)
        if all(type(value) in _NUMBERS for value in values):
            return as_array(list(values), what)
        first = values[0]
        if any(type(value) is not type(first) for value in values):
            values = _as_one_kind(values, path)
            first = values[0]
        if first is None:
            return None
        if isinstance(first, Mapping):
            return self._stack_mappings(values, f"{path}.")
        if dataclasses.is_dataclass(first) and not isinstance(first, type):
            # Fields that the class makes itself, it makes again, of the batch.
            names = [field.name for field in dataclasses.fields(first) if field.init]
            parts = {n: self._part([getattr(v, n) for v in values], f"{path}.{n}") for n in names}
            return dataclasses.replace(first, **parts)
        if isinstance(first, tuple):
            return self._stack_tuples(values, path)
        arrays = [as_array(value, what) for value in values]
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
        for name, values in columns.items() if self._pad else ():
            path = f"{prefix}{name}"
            pad = self._pad.get(path)
            if pad is None or pad.mask is None:
                continue
            if pad.mask in columns:
                raise mask_is_taken(path, pad.mask)
            if not isinstance(batch[name], np.ndarray) or batch[name].ndim < 2:
                raise not_padded([path], batch)
            batch[pad.mask] = mask_of(values, batch[name].shape[1], pad.side)
        return batch

    def _part(self, values: Any, path: str) -> Any:
        """The same as `_stack`, of what has no place for a mask beside it."""
        pad = self._pad.get(path)
        if pad is not None and pad.mask is not None:
            raise DataError(
                f"field {path!r} is to have the mask {pad.mask!r}, but lies in a tuple or "
                f"dataclass, to which nothing can be added; allowed: collate.pad.{path}.mask=null, "
                "or a dict in its place"
            )
        return self._stack(values, path)

    def _stack_tuples(self, values: Sequence[Any], path: str) -> Any:
        first = values[0]
        if len({len(value) for value in values}) > 1:
            raise DataError(f"field {path!r} has tuples of different lengths in one batch")
        parts = [
            self._part([value[i] for value in values], f"{path}.{i}") for i in range(len(first))
        ]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)

    def _stack_arrays(self, arrays: Sequence[NDArray[Any]], path: str) -> NDArray[Any]:
        pad = self._pad.get(path)
        if pad is not None:
            self._unseen.discard(path)
            return padded(arrays, pad, f"field {path!r}")
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            raise DataError(
                f"field {path!r} has samples of different shapes, {shapes[0]} and {shapes[-1]}, "
                "and no padding is configured; allowed: equal shapes, or "
                f"collate=Collate(pad={{{path!r}: Pad(value=0)}})"
            )
        return np.stack(arrays)


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


def as_array(value: Any, what: str = "a field") -> NDArray[Any] | None:
    """An array from an array, a tensor, a number or a list of numbers; None for anything else.

    Args:
        value: one of these.
        what: it is, for errors.

    Raises:
        DataError: values that would be changed: masked ones, integers beyond int64, and those of
            tensors of a kind that NumPy does not have.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(unmasked(value, what))
    elif isinstance(value, bool | int | float | complex | list):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            return None
        if array.dtype.kind in "fuO":
            _check_integers(value, array, what)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
    elif hasattr(value, "numpy"):
        array = _of_tensor(value, what)
    elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
    else:
        return None
    return array if array.dtype.kind in "biufcV" else None


def unmasked(array: Any, what: str) -> Any:
    """An array in which no value is masked.

    Raises:
        DataError: some are, which would be forgotten.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise DataError(
            f"{what} is a masked array, whose mask would be lost; allowed: array.filled(value), "
            "and ~np.ma.getmaskarray(array) as a field of its own"
        )
    return array


def _check_integers(value: Any, array: NDArray[Any], what: str) -> None:
    """Python's integers have no bounds: NumPy makes floats or objects of those beyond 64 bits.

    Raises:
        DataError: there are such integers, and nothing else.
    """
    if array.size == 0 or (array.dtype.kind == "f" and not _is_huge(array)):
        return
    try:
        items = np.asarray(value, dtype=object).ravel().tolist()
    except ValueError:
        return
    if all(type(item) in (bool, int) for item in items):
        beyond = next(item for item in items if not -(2**63) <= item < 2**63)
        raise DataError(
            f"{what} holds the integer {_shortened(beyond)}; allowed: -2**63 to 2**63 - 1 (int64), "
            "or text, or an array of the type that you mean"
        )


def _is_huge(array: NDArray[Any]) -> bool:
    return bool(array.max() >= _BEYOND_INT64 or array.min() < -_BEYOND_INT64)


def _shortened(number: int) -> str:
    bits = number.bit_length()  # of a long one Python refuses to make text
    return str(number) if bits <= 256 else f"of {bits} bits"


def _of_tensor(tensor: Any, what: str) -> NDArray[Any]:
    kind = str(getattr(tensor, "dtype", ""))
    try:
        if "bfloat16" in kind:  # Paddle would give its bits
            raise TypeError("NumPy has no bfloat16")
        for step in ("detach", "cpu"):  # of tensors that have a gradient or live on a device
            tensor = getattr(tensor, step)() if hasattr(tensor, step) else tensor
        return np.asarray(tensor.numpy())
    except (TypeError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{what} is a tensor of type {kind} that cannot become a NumPy array "
            f"({str(error).splitlines()[0]}); convert it in the data set: bfloat16 to float32, "
            "sparse by to_dense()"
        ) from error


def _identities(values: Sequence[Any]) -> NDArray[Any] | list[Any]:
    """Numbers that name samples: integers as an array, others as they are."""
    numbers = [value.item() if isinstance(value, np.generic) else value for value in values]
    array = np.asarray(numbers)
    is_whole = array.dtype.kind == "i" and all(type(number) is int for number in numbers)
    return array if is_whole else numbers


def _listed(values: Any) -> list[Any]:
    """The values of a column; of dates NumPy's own, for Python has them with fewer digits."""
    is_plain = isinstance(values, np.ndarray) and values.dtype.kind not in "mM"
    return values.tolist() if is_plain else list(values)


def _as_one_kind(values: Sequence[Any], path: str) -> Sequence[Any]:
    """Values of different types: arrays where each can be one, as they are where none can."""
    arrays = [as_array(value, f"field {path!r}") for value in values]
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
