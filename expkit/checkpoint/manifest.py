"""The manifest: what makes a directory a checkpoint, and every flipped bit in it known."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expkit.core.store import CheckpointInfo
from expkit.version import __version__

MANIFEST_FILE = "MANIFEST.json"
FORMAT = 1
_FILE_NAME = re.compile(r"[a-z0-9-]+\.(safetensors|json)")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class DamageError(Exception):
    """Why a directory is not a valid checkpoint, in a few words."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint.

    Attributes:
        name: without any directory.
        size: in bytes.
        sha256: of the content, in hexadecimal.
    """

    name: str
    size: int
    sha256: str

    def check(self, content: bytes) -> None:
        """Raise DamageError unless ``content`` is what was written."""
        if len(content) != self.size:
            raise DamageError(f"{self.name} has {len(content)} bytes instead of {self.size}")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DamageError(f"{self.name} does not match its checksum")


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    Attributes:
        step, epoch, metrics, score: as in `CheckpointInfo`.
        files: all files but the manifest itself.
        origin: where the state comes from, for people; see `origin_of`.
    """

    step: int
    epoch: int
    metrics: Mapping[str, float]
    score: float | None
    files: tuple[FileEntry, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)

    def info(self, path: Path) -> CheckpointInfo:
        """The same as the loop wants it, for a checkpoint at ``path``."""
        return CheckpointInfo(path, self.step, self.epoch, self.metrics, self.score)

    def to_bytes(self) -> bytes:
        """The text of MANIFEST.json."""
        files = [vars(entry) for entry in self.files]
        return _render({"format": FORMAT, **vars(self), "files": files})

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """Read the text of MANIFEST.json.

        Raises:
            DamageError: a byte of it differs from what was written, or it is of another format.
        """
        try:
            content = json.loads(text)
            checksum = content.pop("checksum", "")
            if content.get("format") != FORMAT and isinstance(content.get("format"), int):
                raise DamageError(f"has format {content['format']}; this version reads {FORMAT}")
            if _render(content) != text:
                raise DamageError(f"{MANIFEST_FILE} does not match its checksum {checksum[:12]!r}")
            return cls(
                step=int(content["step"]),
                epoch=int(content["epoch"]),
                metrics={str(name): float(value) for name, value in content["metrics"].items()},
                score=None if content["score"] is None else float(content["score"]),
                files=_entries(content["files"]),
                origin=dict(content.get("origin", {})),
            )
        except (
            *(LookupError, TypeError, ValueError, AttributeError),
            *(OverflowError, RecursionError),  # numbers that no float holds, depth
        ) as error:
            message = f"{MANIFEST_FILE} cannot be read ({type(error).__name__}: {error})"
            raise DamageError(message) from error


def origin_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says of where a state comes from.

    Returns:
        The version of ``expkit`` and, where the state tells, ``framework`` and ``world_size``.
    """
    known = state.get("origin", {})
    facts = {key: known[key] for key in ("framework", "world_size") if key in known}
    return {"expkit": __version__, **facts}


def _render(content: dict[str, Any]) -> bytes:
    """The one text of a manifest: as there is no other way to write it, every byte is checked."""
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}).encode() + b"\n"


def _entries(content: Iterable[Mapping[str, Any]]) -> tuple[FileEntry, ...]:
    entries = tuple(map(_entry, content))
    if len({entry.name for entry in entries}) < len(entries):  # each would be read again
        raise ValueError("a part is listed twice")
    return entries


def _entry(content: Mapping[str, Any]) -> FileEntry:
    entry = FileEntry(content["name"], content["size"], content["sha256"])
    if not _FILE_NAME.fullmatch(entry.name) or not _SHA256.fullmatch(entry.sha256):
        raise ValueError(f"{entry.name!r} is not the name of a part")
    if type(entry.size) is not int or entry.size < 0:
        raise ValueError(f"{entry.size!r} is not a size")
    return entry
