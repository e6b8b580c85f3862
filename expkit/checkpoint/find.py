"""The checkpoint that a user names: a run directory, its checkpoints, or one of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from expkit.checkpoint.store import CheckpointStore
from expkit.core.errors import CheckpointError
from expkit.core.store import CheckpointInfo

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
    if path.name.startswith("step-"):
        state, info = CheckpointStore(path.parent).load(path)
        return Found(state, info, f"{path} (step {info.step})")
    root = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    if not root.is_dir():
        raise CheckpointError(f"{path} is neither a run directory nor a checkpoint")
    store = CheckpointStore(root)
    which: Literal["last", "best"] = prefer
    if prefer == "best" and store.best() is None:
        log.info("%s has no best checkpoint: its last one is taken", path)
        which = "last"
    state, info = store.load(which)
    return Found(state, info, f"{path} ({which}, step {info.step})")
