"""How sequences of different lengths become one array."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from expkit.core.errors import ConfigError, DataError, Problem


@dataclass(frozen=True)
class Pad:
    """How a field whose samples differ in length becomes one array.

    Attributes:
        value: what stands in the added places; a number that the type of the field can hold.
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
        if type(self.multiple) is not int or self.multiple < 1:
            message = f"is {self.multiple!r}; allowed: an integer of at least 1"
            problems.append(Problem("multiple", message))
        value: object = self.value
        if not isinstance(value, int | float):
            problems.append(Problem("value", f"is {self.value!r}; allowed: a number"))
        mask: object = self.mask
        if mask is not None and not (isinstance(mask, str) and mask):
            message = f"is {self.mask!r}; allowed: the name of a field to add, or null"
            problems.append(Problem("mask", message))
        if problems:
            raise ConfigError(problems)

    def filling(self, dtype: np.dtype[Any], what: str) -> float:
        """The value, which the type can hold.

        Args:
            dtype: of the array to be padded.
            what: that array, for the error.

        Raises:
            DataError: it would become another one.
        """
        value: float = self.value
        if dtype.kind == "b":
            fits, allowed = value in (0, 1), "0 or 1"
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            fits = limits.min <= value <= limits.max and value == int(value)
            allowed = f"an integer from {limits.min} to {limits.max}"
        elif dtype.kind in "fc":
            most = float(np.finfo(dtype).max)
            # Of integers and NaN neither is asked whether it is finite: the former may be too long.
            fits = not most < abs(value) < np.inf
            allowed = f"a number up to {most:.3g}"
        else:
            return value
        if not fits:
            raise DataError(
                f"{what} is padded with {value!r}, which its type {dtype} cannot hold; allowed: "
                f"{allowed}"
            )
        return value


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


def check_masks(pads: Mapping[str, Pad]) -> None:
    """Make sure that each mask is that of one field.

    Args:
        pads: by the name of the field, with dots where it is nested.

    Raises:
        ConfigError: one of them would be lost.
    """
    fields: dict[str, str] = {}
    for path, pad in pads.items():
        if pad.mask is not None:
            place = path.rpartition(".")[0] + "." + pad.mask
            if place in fields:
                message = f"is {pad.mask!r}, as that of {fields[place]}; allowed: a name of its own"
                raise ConfigError([Problem(f"collate.pad.{path}.mask", message)])
            fields[place] = path


def mask_is_taken(path: str, mask: str) -> DataError:
    """The error for a mask that has the name of a field."""
    return DataError(
        f"field {path!r} is to have the mask {mask!r}, which is a field itself; allowed: a name "
        "of its own"
    )


def not_padded(paths: Iterable[str], batch: Mapping[str, Any]) -> DataError:
    """The error for padding that reaches no sequence."""
    return DataError(
        f"padding is configured for {', '.join(sorted(paths))}, but the samples have no such "
        f"sequences; their fields: {', '.join(batch)}"
    )


def padded(arrays: Sequence[NDArray[Any]], pad: Pad, what: str) -> NDArray[Any]:
    """Arrays that differ in their first axis as one.

    Raises:
        DataError: they differ in others, too, or cannot hold the value.
    """
    if len({array.shape[1:] for array in arrays}) > 1 or arrays[0].ndim == 0:
        shapes = sorted({array.shape for array in arrays})
        raise DataError(
            f"{what} cannot be padded: shapes {shapes[0]} and {shapes[-1]}; allowed: "
            "sequences that differ in their first axis only"
        )
    longest = max(len(array) for array in arrays)
    length = -(-longest // pad.multiple) * pad.multiple
    dtype = np.result_type(*arrays)
    filling = pad.filling(dtype, what)
    batch = np.full((len(arrays), length, *arrays[0].shape[1:]), filling, dtype=dtype)
    for row, array in zip(batch, arrays, strict=True):
        if pad.side == "right":
            row[: len(array)] = array
        else:
            row[length - len(array) :] = array
    return batch


def mask_of(values: Sequence[Any], length: int, side: str) -> NDArray[np.bool_]:
    """Where the values stand in rows of this length that they were padded to."""
    sizes = np.array([len(value) for value in values])[:, None]
    places = np.arange(length)[None, :]
    return places < sizes if side == "right" else places >= length - sizes


def converted(values: NDArray[Any], dtype: DTypeLike, what: str) -> NDArray[Any]:
    """Values as another type, which can hold them; to real numbers they may be rounded.

    Raises:
        DataError: one of them would become another one.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        found = values.astype(dtype)
    if found.dtype.kind in "biu":
        wrong = found != values
    elif found.dtype.kind == "f" and values.dtype.kind == "f":
        wrong = np.isinf(found) & np.isfinite(values)
    else:
        return found
    if wrong.any():
        raise DataError(f"{what} holds {values[wrong][0]}, which {found.dtype} cannot hold")
    return found
