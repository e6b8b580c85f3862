"""What can be seen of data sets without reading all: how long they are, and what lies in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COMPARED_BYTES = 2**22
_COMPARED_ROWS = 64
_SHOWN = 5

Sums = Mapping[str, int]


def sets_of(data: Any) -> dict[str, Any]:
    """The sets of `expkit.data.Data` by the name that an error gives them."""
    train, named = getattr(data, "train", None), getattr(data, "eval", None)
    sets = {} if train is None else {"the training set": train}
    if isinstance(named, Mapping):
        sets |= {f"the evaluation set {name}".rstrip(): one for name, one in named.items()}
    return sets


def single_sets_of(data: Any) -> dict[str, Any]:
    """The same, and of a set that is put together from several, each by its own name."""
    return {
        f"{name} {part}".rstrip(): one
        for name, dataset in sets_of(data).items()
        for part, one in (parts_of(dataset) or {"": dataset}).items()
    }


def parts_of(dataset: Any) -> Mapping[str, Any]:
    """The sets by name that one is put together from, such as `expkit.data.ConcatDataset`."""
    parts = getattr(dataset, "parts", None)
    return parts if isinstance(parts, Mapping) else {}


def arrays_of(dataset: Any) -> Mapping[str, Any]:
    """The columns of a set that lies in memory."""
    arrays = getattr(dataset, "arrays", None)
    return arrays if isinstance(arrays, Mapping) else {}


def content_of(dataset: Any) -> tuple[Any, Sums]:
    """What ranks compare of a set: its length, and a checksum of some rows of each array."""
    try:
        length = len(dataset)
    except TypeError:  # a user's own, which has none
        return None, {}
    sums = {}
    for name, rows in compared_rows(dataset).items():
        kind = zlib.crc32(f"{rows.dtype.str} {rows.shape}".encode())
        sums[name] = zlib.crc32(rows.tobytes(), kind)
    return length, sums


def compared_rows(dataset: Any) -> dict[str, NDArray[Any]]:
    """Rows of each array of a set that lies in memory: all, or as many as are read in no time."""
    rows = {
        f"{part}/{name}": array
        for part, one in parts_of(dataset).items()
        for name, array in compared_rows(one).items()
    }
    for name, array in _flat(arrays_of(dataset)):
        if isinstance(array, np.ndarray) and not array.dtype.hasobject:
            length = len(array)
            row_bytes = max(1, array.nbytes // max(1, length))
            number = min(length, max(_COMPARED_ROWS, _COMPARED_BYTES // row_bytes))
            places = np.linspace(0, length - 1, number).astype(np.int64)
            rows[name] = array if number == length else array[places]
    return rows


def _flat(arrays: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays by name; of `expkit.data.Ragged`, rows of different lengths, both parts."""
    for name, array in arrays.items():
        if hasattr(array, "offsets"):
            yield name, array.values
            yield f"the lengths of {name}", array.offsets
        else:
            yield name, array


def some_of(items: Sequence[str], separator: str) -> str:
    """The first of many names, as an error shows them."""
    rest = len(items) - _SHOWN
    return separator.join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
