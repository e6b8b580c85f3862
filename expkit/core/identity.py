"""The field ``id``, by which people know a sample: as JSON values that lose nothing."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from expkit.core.errors import PredictionError

_CONTAINERS = (list, tuple, set, frozenset, Mapping, np.ndarray)


def identities(values: Any, size: int) -> list[Any]:
    """The identity of each sample of a batch.

    Numbers and text stay as they are, dates become text as ISO 8601 has it, and bytes the text that
    they are in UTF-8.

    Args:
        values: the field; an array, or a list with an entry for each sample.
        size: how many samples there are.

    Raises:
        PredictionError: they are something else, or not as many.
    """
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise _refused(0, values)
    found = [_identity(place, value) for place, value in enumerate(_listed(values))]
    if len(found) != size:
        raise PredictionError(f"field 'id' has {len(found)} values for {size} samples")
    return found


def _listed(values: Any) -> list[Any]:
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind in "mM" and kind:  # dates: Python has them with fewer digits, or as integers
        return list(values)
    if kind == "f" and values.dtype.itemsize < 8:  # as short as their precision allows
        values = values.astype(str).astype(np.float64)
    listed: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed


def _identity(place: int, value: Any) -> Any:
    if isinstance(value, _CONTAINERS) or value is None:
        raise _refused(place, value)
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _refused(place, value) from None
    return value


def _refused(place: int, value: Any) -> PredictionError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:80] + "..."
    return PredictionError(
        f"field 'id' is {shown}, of type {type(value).__name__}, at place {place} of a batch; "
        "allowed: one number or text for each sample"
    )
