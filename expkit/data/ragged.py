"""Rows of different lengths without padding: one array, and where each row begins."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import DataError
from expkit.data.collate import as_array
from expkit.data.padding import Pad, as_pad, converted, mask_is_taken

_WHAT = "a ragged column"


@final
class Ragged:
    """A column of `ArrayDataset` whose rows differ in length; a batch is as long as its longest.

    Args:
        values: the rows end to end; an array, in memory or memory-mapped. Further axes are those of
            one entry of a row.
        offsets: where each row begins in ``values``, and where the last one ends.
        pad: how the rows of a batch are made equally long: `Pad`, or a mapping of its options.

    Attributes:
        values, offsets, pad: the same.
    """

    def __init__(
        self, values: Any, offsets: Any, pad: Pad | Mapping[str, Any] | None = None
    ) -> None:
        found, places = as_array(values, _WHAT), np.asarray(offsets)
        if found is None or found.ndim == 0:
            raise DataError(
                f"a ragged column has values of {type(values).__name__}; allowed: an "
                "array of all rows end to end"
            )
        if places.ndim != 1 or places.dtype.kind not in "iu" or len(places) == 0:
            raise DataError(
                f"a ragged column has offsets {places.dtype} of shape {places.shape}; allowed: one "
                "integer per row, and one more"
            )
        lengths = np.diff(places)
        if places[0] != 0 or places[-1] != len(found) or (lengths < 0).any():
            raise DataError(
                f"the offsets of a ragged column go from {places[0]} to {places[-1]}; allowed: "
                f"from 0 to the {len(found)} entries of its values, none smaller than the one "
                "before"
            )
        self.values: NDArray[Any] = found
        self.offsets: Indices = places.astype(np.int64)
        self.pad = as_pad(pad or Pad(), "pad")
        self._filling = self.pad.filling(found.dtype, _WHAT)

    @classmethod
    def of(
        cls, rows: Sequence[Any], pad: Pad | Mapping[str, Any] | None = None, dtype: Any = None
    ) -> Ragged:
        """A column of these rows: arrays, tensors or lists of numbers.

        Args:
            rows: the rows; their entries must be of one shape.
            pad: see the class.
            dtype: of the values; None = that of all rows together.

        Raises:
            DataError: rows that cannot be such a column, or values that the type cannot hold.
        """
        arrays = [as_array(row, f"row {n} of {_WHAT}") for n, row in enumerate(rows)]
        for number, array in enumerate(arrays):
            if array is None or array.ndim == 0:
                raise DataError(
                    f"row {number} of a ragged column is {type(rows[number]).__name__}; allowed: "
                    "arrays, tensors, or lists of numbers"
                )
        found = [array for array in arrays if array is not None]
        filled = [array for array in found if len(array)] or found[:1]
        shapes = sorted({array.shape[1:] for array in filled})
        if len(shapes) > 1:
            raise DataError(
                f"the rows of a ragged column have entries of shapes {shapes[0]} and {shapes[-1]}; "
                "allowed: rows that differ in length only"
            )
        values = np.concatenate(filled) if filled else np.empty(0)
        offsets = np.cumsum([0, *map(len, found)], dtype=np.int64)
        return cls(values if dtype is None else converted(values, dtype, _WHAT), offsets, pad)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Indices:
        """The length of each row."""
        return np.diff(self.offsets)

    def take(self, indices: Indices) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """These rows, made equally long, and which of their entries are real."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        longest = int(lengths.max(initial=0))
        width = -(-longest // self.pad.multiple) * self.pad.multiple
        places = np.arange(width)
        is_real = (
            places < lengths[:, None]
            if self.pad.side == "right"
            else places >= width - lengths[:, None]
        )
        ends = np.cumsum(lengths)
        entries = np.arange(ends[-1] if len(ends) else 0)
        entries += np.repeat(starts - (ends - lengths), lengths)
        shape = (len(indices), width, *self.values.shape[1:])
        rows = np.full(shape, self._filling, dtype=self.values.dtype)
        rows[is_real] = self.values.take(entries, axis=0)
        return rows, is_real


def check_masks_beside(fields: Container[str], ragged: Mapping[str, Ragged]) -> None:
    """Make sure that each mask of ragged columns has a name of its own among the fields.

    Raises:
        DataError: one of them would overwrite another, or a field.
    """
    found: dict[str, str] = {}
    for name, each in ragged.items():
        mask = each.pad.mask
        if mask is None:
            continue
        if mask in fields:
            raise mask_is_taken(name, mask)
        if mask in found:
            raise DataError(
                f"fields {found[mask]!r} and {name!r} are to have one mask, {mask!r}; allowed: a "
                "name for each"
            )
        found[mask] = name
