"""A state tree as files: arrays in safetensors, the rest in JSON. Reading one executes nothing.

``state.json`` holds the tree with null where an array goes; the array's name is its path in the
tree, written as a JSON pointer (RFC 6901) without the first slash. ``model`` and ``optimizer`` have
a file of arrays each, named without that first key: ``model.safetensors`` is a plain file of
weights by parameter path. What belongs to one rank alone, its random state, has a JSON file of its
own, ``rank-0003.json`` with the arrays in it, and is found below ``ranks`` in the tree.

The layout of safetensors is https://github.com/huggingface/safetensors#format. Files are laid out
here, for the library would copy every array while it holds the interpreter's lock; they are read
by the library.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from expkit.checkpoint.manifest import DamageError, FileEntry
from expkit.core.errors import CheckpointError

TREE_FILE = "state.json"
_RANK_FILE = re.compile(r"rank-(\d+)\.json")
_ARRAY_FILES = {"model": "model.safetensors", "optimizer": "optimizer.safetensors"}
_OTHER_ARRAYS = "arrays.safetensors"

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NAMES = {code: name for name, code in _CODES.items()}
_PLAIN = {int, float, str, bool, type(None)}
_RESERVED = "__metadata__"  # means something else in a safetensors header
_RESERVED_AS = "~2"

KeyPath = tuple[str, ...]
Arrays = dict[KeyPath, NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint, not yet written.

    Attributes:
        name: of the file.
        chunks: its content in order; the arrays' own memory, not copies.
        size: bytes in all.
    """

    name: str
    chunks: list[bytes | memoryview]
    size: int

    def entry(self) -> FileEntry:
        """Its line in the manifest."""
        digest = hashlib.sha256()
        for chunk in self.chunks:
            digest.update(chunk)
        return FileEntry(self.name, self.size, digest.hexdigest())


def encode(state: Mapping[str, Any]) -> list[Part]:
    """The files that hold a state tree. They share the arrays' memory, which must stay as it is.

    Tuples come back as lists and NumPy scalars as Python numbers, as JSON has neither.

    Raises:
        CheckpointError: a leaf that is neither an array nor a JSON value; names its path.
    """
    arrays: Arrays = {}
    tree = _split({key: value for key, value in state.items() if key != "ranks"}, (), arrays)
    files: dict[str, Arrays] = {}
    for path, array in arrays.items():
        own = _ARRAY_FILES.get(path[0]) if len(path) > 1 else None
        files.setdefault(own or _OTHER_ARRAYS, {})[path[1:] if own else path] = array
    parts = [_safetensors_part(name, content) for name, content in files.items()]
    parts.append(_json_part(TREE_FILE, tree))
    for rank, own in state.get("ranks", {}).items():
        parts.append(_json_part(f"rank-{rank}.json", _inline(own)))
    return parts


def decode(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The state tree that ``encode`` took apart.

    Raises:
        DamageError: the files are not those of a state tree.
    """
    try:
        tree: dict[str, Any] = {**json.loads(parts[TREE_FILE])}
        for top, name in _ARRAY_FILES.items():
            if name in parts:
                _graft(tree[top], _read_safetensors(parts[name]))
        if _OTHER_ARRAYS in parts:
            _graft(tree, _read_safetensors(parts[_OTHER_ARRAYS]))
        ranks = {
            found[1]: _outline(json.loads(content))
            for name, content in parts.items()
            if (found := _RANK_FILE.fullmatch(name))
        }
        if ranks:
            tree["ranks"] = ranks
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
        SafetensorError,
    ) as error:
        raise DamageError(f"it holds no state tree ({type(error).__name__}: {error})") from error
    return tree


# -- the tree --------------------------------------------------------------------------------------


def _split(value: Any, path: KeyPath, arrays: Arrays) -> Any:
    """The tree with null in place of its arrays; those go to ``arrays`` by path."""
    if value is None or isinstance(value, (str, int, float)):  # a bool is an int
        return value
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return None
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _unwritable(path, f"the key {key!r} of type {type(key).__name__}")
        return {key: _split(child, (*path, key), arrays) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        if _PLAIN.issuperset(map(type, value)):  # long lists of numbers are common in random states
            return value
        return [_split(item, (*path, str(index)), arrays) for index, item in enumerate(value)]
    if isinstance(value, np.generic) and _code_of(value.dtype):
        return value.item()
    raise _unwritable(path, f"a value of type {type(value).__name__}")


def _graft(tree: Any, arrays: Arrays) -> None:
    """Put arrays back where they were."""
    for path, array in arrays.items():
        branch = tree
        for key in path[:-1]:
            branch = branch[_index(branch, key)]
        last = _index(branch, path[-1])
        if branch[last] is not None:
            raise ValueError(f"the place of array {_name(path)!r} is taken")
        branch[last] = array


def _index(branch: Any, key: str) -> str | int:
    return int(key) if isinstance(branch, list) else key


def _unwritable(path: KeyPath, what: str) -> CheckpointError:
    place = "".join(f"[{key!r}]" for key in path)
    return CheckpointError(
        f"state{place} holds {what}, which a checkpoint cannot hold; allowed: dicts with text "
        f"keys, lists, text, numbers, booleans, None, and NumPy arrays of {', '.join(_CODES)}"
    )


def _name(path: KeyPath) -> str:
    """A path as text."""
    name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)
    return _RESERVED_AS if name == _RESERVED else name


def _path(name: str) -> KeyPath:
    """A path from its text."""
    if name == _RESERVED_AS:
        return (_RESERVED,)
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in name.split("/"))


# -- files -----------------------------------------------------------------------------------------


def _json_part(name: str, tree: Any) -> Part:
    try:
        content = json.dumps(tree, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:  # too many digits, or too deep
        raise CheckpointError(f"{name} cannot hold the state: {error}") from error
    return Part(name, [content], len(content))


def _safetensors_part(name: str, arrays: Arrays) -> Part:
    """Header length, header, then the arrays; the widest type first, so that all lie aligned."""
    header: dict[str, Any] = {}
    chunks: list[bytes | memoryview] = []
    end = 0
    for path, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):
        code, content = _code(path, array), _bytes(array)
        start, end = end, end + len(content)
        entry = {"dtype": code, "shape": array.shape, "data_offsets": (start, end)}
        header[_safetensors_name(path)] = entry
        chunks.append(content)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    front = len(text).to_bytes(8, "little") + text
    return Part(name, [front, *chunks], len(front) + end)


def _safetensors_name(path: KeyPath) -> str:
    name = _name(path)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise _unwritable(path, "an array under a key that is no valid Unicode") from error
    return name


def _read_safetensors(content: bytes) -> Arrays:
    arrays = {}
    for name, tensor in deserialize(content):  # type: ignore[no-untyped-call]
        array = np.frombuffer(tensor["data"], dtype=_dtype(tensor["dtype"]))
        arrays[_path(name)] = array.reshape(tensor["shape"])
    return arrays


def _inline(tree: Any) -> dict[str, Any]:
    """A tree as JSON alone: for the few and small arrays of random states."""
    arrays: Arrays = {}
    rest = _split(tree, (), arrays)
    inlined = {
        _name(path): {
            "dtype": _code(path, array),
            "shape": array.shape,
            "base64": base64.b64encode(_bytes(array)).decode(),
        }
        for path, array in arrays.items()
    }
    return {"tree": rest, "arrays": inlined}


def _outline(content: Any) -> Any:
    arrays: Arrays = {}
    for name, entry in content["arrays"].items():
        memory = bytearray(base64.b64decode(entry["base64"], validate=True))
        arrays[_path(name)] = np.frombuffer(memory, _dtype(entry["dtype"])).reshape(entry["shape"])
    _graft(content["tree"], arrays)
    return content["tree"]


# -- arrays ----------------------------------------------------------------------------------------


def _code(path: KeyPath, array: NDArray[Any]) -> str:
    code = _code_of(array.dtype)
    if code is None:
        raise _unwritable(path, f"an array of {array.dtype}")
    return code


@cache
def _code_of(dtype: np.dtype[Any]) -> str | None:
    return _CODES.get(dtype.name)


def _bytes(array: NDArray[Any]) -> memoryview:
    """The content in C order and little-endian; the array's own memory where it is so already."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _dtype(code: str) -> np.dtype[Any]:
    name = _NAMES[code]
    return np.dtype(getattr(ml_dtypes, name, name))
