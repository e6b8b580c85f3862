"""Values on their way between processes: JSON, with arrays exact to the last bit."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np

_ARRAY = "__ndarray__"


def encode(value: Any) -> str:
    """One line of JSON.

    Args:
        value: nested dicts with text as keys, lists and tuples of arrays, numbers, text and None.
            Tuples come out as lists, NumPy's scalars as Python's.

    Raises:
        TypeError: it holds something else; names its type.
    """
    return json.dumps(_plain(value))


def decode(line: str) -> Any:
    """The value that `encode` was given."""
    return json.loads(line, object_hook=_object)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return {_ARRAY: base64.b64encode(file.getvalue()).decode()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"a dict between processes has the key {wrong!r}; allowed: text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} cannot go between processes; "
        "allowed: arrays, numbers, text, None, and dicts, lists and tuples of these"
    )


def _object(value: dict[str, Any]) -> Any:
    if value.keys() == {_ARRAY}:
        return np.load(io.BytesIO(base64.b64decode(value[_ARRAY])), allow_pickle=False)
    return value
