"""The checkpoint that a user names: a run directory, its checkpoints, or one of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from expkit.checkpoint import search
from expkit.checkpoint.manifest import MANIFEST_FILE
from expkit.checkpoint.store import CheckpointStore
from expkit.core.errors import CheckpointError, NoCheckpointError, RunDirectoryError
from expkit.core.store import CheckpointInfo
from expkit.run.directory import CHECKPOINTS_DIRECTORY, RunDirectory
from expkit.run.history import saved_config
from expkit.run.status import STATUS_FILE

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A checkpoint that was asked for.

    Attributes:
        state: its verified state tree.
        info: what it says of itself.
        description: where it is and which one it is, for people.
    """

    state: dict[str, Any]
    info: CheckpointInfo
    description: str


def find_checkpoint(path: Path, prefer: Literal["last", "best"]) -> Found:
    """Read the checkpoint at a path.

    Args:
        path: a run directory, its ``checkpoints``, or one checkpoint.
        prefer: which of a run's checkpoints to take; ``best`` takes the last of a run that has no
            best.

    Raises:
        CheckpointError: nothing is there, or what is there is damaged.
    """
    root = _root(path)
    store = CheckpointStore(path.parent if root is None else root)
    if root is None:
        state, info = store.load(path)
        return Found(state, info, f"{path} (step {info.step})")
    which: Literal["last", "best"] = prefer
    try:
        state, info = store.load(which)
    except NoCheckpointError:
        if prefer == "last":
            raise
        log.info("%s has no best checkpoint: its last one is taken", path)
        which = "last"
        state, info = store.load(which)
    return Found(state, info, f"{path} ({which}, step {info.step})")


def check_source(path: Path) -> None:
    """Look whether there is anything to read at a path, without reading it.

    Raises:
        CheckpointError: there is no checkpoint; says what is there instead.
    """
    root = _root(path)
    if root is None or search.candidates(root):
        return
    if not path.is_dir():
        raise CheckpointError(f"{path} does not exist or is no directory")
    if (path / STATUS_FILE).is_file():
        raise CheckpointError(f"the run {path} has no checkpoint")
    raise CheckpointError(f"{path} is neither a run directory nor a checkpoint")


def check_resumable(path: Path) -> None:
    """Look whether a run can go on from a path, or begin anew there.

    Raises:
        CheckpointError: see `check_source`.
    """
    if not begins_anew(path):
        check_source(path)


def begins_anew(run: Path) -> bool:
    """Whether all that a run can do is begin again: no checkpoint, and yet not completed.

    Args:
        run: a path; one that is no directory of a training does not begin anew.
    """
    if search.candidates(run / CHECKPOINTS_DIRECTORY):
        return False
    try:
        status, config = RunDirectory(run).info()["status"], saved_config(run)
    except (RunDirectoryError, LookupError):
        return False
    return bool(status != "completed" and config.get("task") == "train")


def check_bare(root: Path) -> None:
    """Make sure that a run which begins anew leaves no checkpoint behind.

    Raises:
        CheckpointError: another process has made one since `begins_anew` was asked.
    """
    found = search.candidates(root)
    if found:
        raise CheckpointError(f"{found[0]} has just come from elsewhere: give the command again")


def _root(path: Path) -> Path | None:
    """The directory of checkpoints that a path leads to; None where it is one checkpoint.

    Raises:
        CheckpointError: the path cannot be looked at.
    """
    inner = path / CHECKPOINTS_DIRECTORY
    try:
        if inner.is_dir() or (path / STATUS_FILE).is_file():
            return inner
        if (path / MANIFEST_FILE).is_file() or path in search.candidates(path.parent):
            return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be looked at: {error.strerror}") from error
    return path
