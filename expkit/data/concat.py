"""Several data sets one after the other, as one."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import DataError
from expkit.data.collate import as_array
from expkit.data.dataset import ArrayDataset, CollateFunction, Dataset, ItemDataset, draws
from expkit.data.padding import Pad
from expkit.data.ragged import Ragged
from expkit.data.randomness import reading_rows


@final
class ConcatDataset:
    """The samples of named data sets, one set after the other.

    A batch may have samples of several sets: each set is asked once, and the rows are put back in
    the order that was asked for. So all sets must have the same fields, of one type and shape.

    Args:
        parts: the sets by name.
        collate: makes a batch of the samples of all sets where these come one by one
            (`ItemDataset`): so sequences are padded to the longest one of the batch, whichever set
            has it, as those of `Ragged` columns are. None = each set makes its own part of a batch.

    Attributes:
        parts: the sets by name.
        offsets: index of each set's first sample, and the number of all samples at the end.
        draws: whether reading may draw random numbers, in any of the sets.

    Raises:
        DataError: no set, or sets in memory whose fields do not fit together.
    """

    def __init__(
        self, parts: Mapping[str, Dataset], collate: CollateFunction | None = None
    ) -> None:
        if not parts:
            raise DataError("there is no set to put together; allowed: name -> data set")
        self.parts = dict(parts)
        self.offsets: Indices = np.cumsum([0, *map(len, parts.values())], dtype=np.int64)
        self.draws = any(map(draws, parts.values()))
        items = [part.items for part in parts.values() if isinstance(part, ItemDataset)]
        together = collate is not None and len(items) == len(parts)
        self._joined = ItemDataset(_Chain(items), collate) if together else None
        in_memory = {n: part for n, part in parts.items() if isinstance(part, ArrayDataset)}
        self._pads = _common_pads(list(in_memory.values())) if len(in_memory) == len(parts) else {}
        if in_memory:
            none = np.empty(0, dtype=np.int64)
            _merged([_Share(name, none, part.fetch(none)) for name, part in in_memory.items()])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def fetch(self, indices: Indices) -> Mapping[str, Any]:
        """These samples, in this order.

        Raises:
            DataError: samples of several sets that do not fit into one batch.
        """
        if self._joined is not None:
            return self._joined.fetch(indices)
        numbers = np.searchsorted(self.offsets, indices, side="right") - 1
        shares = []
        for number, (name, part) in enumerate(self.parts.items()):
            places = np.flatnonzero(numbers == number)
            if len(places):
                try:
                    with reading_rows(places):
                        fields = part.fetch(indices[places] - self.offsets[number])
                except DataError as error:
                    raise DataError(f"training set {name!r}: {error}") from error
                shares.append(_Share(name, places, fields))
        if len(shares) == 1:
            whole: Mapping[str, Any] = shares[0].value
            return whole
        for name, pad in self._pads.items():
            shares = _padded(shares, name, pad)
        merged: Mapping[str, Any] = _merged(shares)
        return merged


class _Chain:
    """Samples of several sequences as one."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._ends = list(itertools.accumulate(map(len, items)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        number = bisect.bisect_right(self._ends, index)
        return self._items[number][index - (self._ends[number - 1] if number else 0)]


@dataclasses.dataclass(frozen=True)
class _Share:
    """What one set gives to a batch: all its fields, or one of them.

    Attributes:
        name: of the set.
        places: of its samples in the batch.
        value: the fields by name, or the field.
    """

    name: str
    places: Indices
    value: Any

    def part(self, key: Any) -> _Share:
        """A part of the value, which is a mapping or a tuple."""
        return dataclasses.replace(self, value=self.value[key])


def _common_pads(parts: Sequence[ArrayDataset]) -> dict[str, Pad]:
    """How fields are padded whose rows differ in length, and are padded alike in all sets."""
    pads = {}
    for name, column in parts[0].arrays.items():
        columns = [part.arrays.get(name) for part in parts]
        if isinstance(column, Ragged) and all(
            isinstance(each, Ragged) and each.pad == column.pad for each in columns
        ):
            pads[name] = column.pad
    return pads


def _padded(shares: Sequence[_Share], name: str, pad: Pad) -> list[_Share]:
    """The same, a field and its mask made as long as the longest of all sets."""
    width = max(share.value[name].shape[1] for share in shares)
    fillings = {name: pad.value} if pad.mask is None else {name: pad.value, pad.mask: False}
    padded = []
    for share in shares:
        fields = dict(share.value)
        for key, filling in fillings.items():
            rows = fields[key]
            added = width - rows.shape[1]
            before, after = (added, 0) if pad.side == "left" else (0, added)
            widths = [(0, 0), (before, after), *[(0, 0)] * (rows.ndim - 2)]
            fields[key] = np.pad(rows, widths, constant_values=filling)
        padded.append(dataclasses.replace(share, value=fields))
    return padded


def _merged(shares: Sequence[_Share], path: str = "") -> Any:
    """The value of the whole batch, whatever the arrays are nested in."""
    first = shares[0].value
    _check_same(shares, path, [_kind(share.value) for share in shares])
    if isinstance(first, Mapping):
        prefix = f"{path}." if path else ""
        return {key: _merged([s.part(key) for s in shares], f"{prefix}{key}") for key in first}
    if isinstance(first, tuple):
        parts = [_merged([s.part(i) for s in shares], f"{path}.{i}") for i in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, list):
        return _merged_lists(shares)
    if first is None:
        return None
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first) if field.init]
        named = [
            dataclasses.replace(s, value={name: getattr(s.value, name) for name in names})
            for s in shares
        ]
        return dataclasses.replace(first, **_merged(named, path))
    return _merged_arrays(shares, path)


def _merged_lists(shares: Sequence[_Share]) -> list[Any]:
    merged: list[Any] = [None] * sum(len(share.places) for share in shares)
    for share in shares:
        for place, item in zip(share.places.tolist(), share.value, strict=True):
            merged[place] = item
    return merged


def _merged_arrays(shares: Sequence[_Share], path: str) -> NDArray[Any]:
    arrays = [as_array(share.value, f"field {path!r}") for share in shares]
    first = arrays[0]
    if first is None:
        raise DataError(
            f"field {path!r} is a {type(shares[0].value).__name__} for a whole batch, which cannot "
            "be put together from several sets; allowed: arrays and lists with a row per sample"
        )
    rows = [array for array in arrays if array is not None]
    _check_same(shares, path, [f"{array.dtype} of shape {array.shape[1:]}" for array in rows])
    merged = np.empty((sum(map(len, rows)), *first.shape[1:]), dtype=first.dtype)
    for share, array in zip(shares, rows, strict=True):
        merged[share.places] = array
    return merged


def _check_same(shares: Sequence[_Share], path: str, kinds: Sequence[str]) -> None:
    """Make sure that a field is the same kind of thing in all sets.

    Raises:
        DataError: names two sets, and what each has.
    """
    for share, kind in zip(shares, kinds, strict=True):
        if kind != kinds[0]:
            raise DataError(
                f"{f'field {path!r}' if path else 'a sample'} is {kinds[0]} in training set "
                f"{shares[0].name!r} and {kind} in {share.name!r}; allowed: the same fields in "
                "all sets, of one type and shape (sequences: padded to one length, or samples that "
                "come one by one, with data.collate)"
            )


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    if isinstance(value, tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, list) or as_array(value) is None:
        return f"a {type(value).__name__}"
    return "an array"
