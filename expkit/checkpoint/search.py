"""Finding checkpoints: by looking at what is there, never by time, pointer or link."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from expkit.checkpoint import directory
from expkit.checkpoint.manifest import DamageError, Manifest
from expkit.core.errors import CheckpointError
from expkit.core.store import CheckpointInfo

log = logging.getLogger(__name__)

_NAME = re.compile(rf"step-(\d+)({re.escape(directory.REPLACED)})?")

T = TypeVar("T")


def name_of(step: int) -> str:
    """The name of the directory for a step."""
    return f"step-{step:08d}"


def step_of(path: Path) -> int:
    """The step that a candidate's name tells; what it holds may be another."""
    return int(path.name.removesuffix(directory.REPLACED).removeprefix("step-"))


def candidates(root: Path) -> list[Path]:
    """All below ``root`` that is named like a checkpoint, the latest step first, whatever it is."""
    try:
        names = [path.name for path in root.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"cannot look for checkpoints in {root}: {error.strerror}"
        raise CheckpointError(message) from error
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    matches.sort(key=lambda match: (int(match[1]), match[2] is None), reverse=True)
    return [root / match[0] for match in matches]


def newest_step(root: Path) -> int | None:
    """The step of the newest checkpoint with a whole manifest; None where there is none."""
    for path in candidates(root):
        with suppress(DamageError):
            return describe(path).step
    return None


def describe(path: Path) -> CheckpointInfo:
    """What the manifest says; the other files are not read."""
    return _info(path, directory.read_manifest(path))


def verify(path: Path) -> CheckpointInfo:
    """What the manifest says, after reading and comparing all files."""
    return _info(path, directory.verify(path))


def load(path: Path) -> tuple[dict[str, Any], CheckpointInfo]:
    """The state tree, after comparing all files."""
    state, manifest = directory.read(path)
    return state, _info(path, manifest)


def first_valid(paths: Sequence[Path], read: Callable[[Path], T]) -> T | None:
    """What ``read`` gives for the first valid checkpoint; None where there is no path.

    Raises:
        CheckpointError: there are paths, and none is valid.
    """
    reasons = []
    for path in paths:
        try:
            return read(path)
        except DamageError as error:
            log.warning("skipped checkpoint %s: %s", path, error)
            reasons.append(f"\n  {path}: {error}")
    if reasons:
        raise CheckpointError(
            "every checkpoint is damaged (resume=null starts anew):" + "".join(reasons)
        )
    return None


def load_named(path: Path) -> tuple[dict[str, Any], CheckpointInfo]:
    """The checkpoint that a user named, wherever it is and whatever it is called.

    Raises:
        CheckpointError: it is absent or damaged; names the last good one beside it.
    """
    path = Path(os.path.realpath(path))
    try:
        state, manifest = directory.read(path)
    except DamageError as error:
        message = f"checkpoint {path} cannot be used: {error}"
        for other in candidates(path.parent):
            with suppress(DamageError):
                verify(other)
                message += f"; the last good one beside it is {other} (try: resume={other})"
                break
        raise CheckpointError(message) from error
    return state, manifest.info(path)


def _info(path: Path, manifest: Manifest) -> CheckpointInfo:
    name = name_of(manifest.step)
    if path.name.removesuffix(directory.REPLACED) != name:
        raise DamageError(f"it holds step {manifest.step}, which is not its name")
    return manifest.info(path)
