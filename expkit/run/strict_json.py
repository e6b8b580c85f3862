"""JSON as RFC 8259 has it, which knows neither NaN nor infinity.

These are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which ``float()``
reads back. Scalars of NumPy become numbers, tuples and sets become lists, and anything else without
a JSON form becomes its text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_compact = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)
_indented = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)


def encode_line(value: Any) -> bytes:
    """One line of JSON, with its newline."""
    try:
        text = _compact.encode(value)
    except (TypeError, ValueError):  # rare: only now is the value walked in Python
        text = _compact.encode(_plain(value))
    return text.encode(errors="backslashreplace") + b"\n"


def encode_document(value: Any) -> bytes:
    """Indented JSON for a file of its own."""
    return _indented.encode(_plain(value)).encode(errors="backslashreplace") + b"\n"


def _plain(value: Any) -> Any:
    """``value`` in JSON's own types."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _non_finite(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return _plain(value.tolist())
    return str(value)


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
