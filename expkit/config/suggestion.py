"""The nearest right name, and values as messages show them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 60


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name of ``names`` that ``name`` was probably meant to be, or None."""
    matches = difflib.get_close_matches(name[:200], list(names), n=1, cutoff=0.6)
    return matches[0] if matches else None


def show(value: object) -> str:
    """A value on one line of bounded length, control characters escaped."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def listing(names: Iterable[str]) -> str:
    """Names for a message, in their order."""
    return ", ".join(names) or "nothing"


def literal(value: object) -> str:
    """A value as an override writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(literal(item) for item in value) + "]"
    return str(value)
