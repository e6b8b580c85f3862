"""The state of a user's own loader or stream as a checkpoint can hold it: no pickle, both ways."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from expkit.core.errors import DataError

_PLAIN = (bool, int, float, str, type(None))
_FRAMEWORKS = ("torch", "paddle")


def to_plain(value: Any, of: str) -> Any:
    """Arrays and JSON values from nested dicts, lists, tuples, bytes, numbers, arrays and tensors.

    What JSON does not have is written as ``[kind, content]``; arrays are copies.

    Args:
        value: the state.
        of: whose it is, for errors.

    Raises:
        DataError: it holds something else; names the place.
    """
    try:
        return _plain(value, f"the state of {of}")
    except RecursionError as error:
        raise DataError(
            f"the state of {of} holds itself, or is nested too deeply for a checkpoint; allowed: "
            "dicts and lists that end"
        ) from error


def from_plain(plain: Any) -> Any:
    """What `to_plain` took apart."""
    if not isinstance(plain, list):
        return plain
    kind, content = plain
    return _MAKERS[kind](content)


def _plain(value: Any, place: str) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return value.copy()
    if isinstance(value, np.bool_ | np.number):
        return ["scalar", np.asarray(value)]
    if type(value) in (dict, OrderedDict):
        items = [[_plain(k, place), _plain(v, f"{place}[{k!r}]")] for k, v in value.items()]
        return [type(value).__name__, items]
    if type(value) in (list, tuple):
        kind = type(value).__name__
        if all(type(item) in _PLAIN for item in value):  # of Python's generator there are 625
            return [kind, list(value)]
        return [kind, [_plain(item, f"{place}[{i}]") for i, item in enumerate(value)]]
    if isinstance(value, bytes | bytearray):
        return [type(value).__name__, np.frombuffer(bytes(value), np.uint8)]
    framework = type(value).__module__.partition(".")[0]
    if framework in _FRAMEWORKS and hasattr(value, "numpy"):
        return [framework, np.array(value.numpy())]
    raise DataError(
        f"{place} is of type {type(value).__name__}, which a checkpoint cannot hold; allowed: "
        "dicts, lists, tuples, text, bytes, numbers, booleans, None, arrays and tensors"
    )


def _pairs(content: Any) -> dict[Any, Any]:
    return {from_plain(key): from_plain(value) for key, value in content}


def _items(content: Any) -> list[Any]:
    return [from_plain(item) for item in content]


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "scalar": lambda content: content.dtype.type(content[()]),
    "dict": _pairs,
    "OrderedDict": lambda content: OrderedDict(_pairs(content)),
    "list": _items,
    "tuple": lambda content: tuple(_items(content)),
    "bytes": lambda content: content.tobytes(),
    "bytearray": lambda content: bytearray(content.tobytes()),
    "torch": lambda content: importlib.import_module("torch").from_numpy(content.copy()),
    "paddle": lambda content: importlib.import_module("paddle").to_tensor(content),
}
