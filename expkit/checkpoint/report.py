"""What can be said of the checkpoints that are on the disk, also while a run goes on saving."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from expkit.checkpoint import directory, search
from expkit.checkpoint.manifest import MANIFEST_FILE, DamageError, Manifest
from expkit.checkpoint.tensors import TREE_FILE
from expkit.core.errors import CheckpointError
from expkit.core.store import CheckpointInfo

_MOST_ROUNDS = 10


@dataclass(frozen=True)
class Report:
    """What was found of one checkpoint.

    Attributes:
        path: its directory.
        damage: why it is not whole; empty where it is.
        info: what it says of itself; None where it is damaged.
        num_bytes: size of its files.
        monitor: the metric that decides which is best, as the config has it; None where it has
            none.
        framework, world_size: what trained it, and how many ranks; None where it does not say.
    """

    path: Path
    damage: str = ""
    info: CheckpointInfo | None = None
    num_bytes: int = 0
    monitor: str | None = None
    framework: str | None = None
    world_size: int | None = None


def is_checkpoint(path: Path) -> bool:
    """Whether a path is that of one checkpoint, damaged or not."""
    return (path / MANIFEST_FILE).is_file() or path in search.candidates(path.parent)


def examine(path: Path) -> Report | None:
    """Read and compare all files of one checkpoint.

    Returns:
        None where it is gone: the run has retired it.
    """
    while True:
        before = _identity(path)
        try:
            return _whole(path)
        except DamageError as error:
            now = _identity(path)
            if now is None:
                return None
            if now == before:
                return Report(path, damage=str(error))
            # It was replaced by another of the same step while it was read.


def examine_all(root: Path) -> list[Report]:
    """Examine all checkpoints below ``root``, the latest first.

    Raises:
        CheckpointError: ``root`` cannot be read, or the run retires its checkpoints faster than
            they can be read.
    """
    for _ in range(_MOST_ROUNDS):
        paths = _settled(search.candidates(root))
        reports = [report for path in paths if (report := examine(path)) is not None]
        if reports or not paths:
            return reports
    raise CheckpointError(
        f"each checkpoint in {root} was replaced by a later one before it was read; look again "
        "when the run has ended, or keep more of them (checkpoint.keep_last)"
    )


def best_of(reports: Iterable[Report]) -> Report | None:
    """The whole one with the greatest score, of equals the earliest; None where none has one."""
    scored = [
        (report.info.score, -report.info.step, report)
        for report in reports
        if report.info is not None and report.info.score is not None
    ]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def _settled(paths: list[Path]) -> list[Path]:
    """Without those that have a successor of the same step and only wait to be removed."""
    replaced = {directory.aside(path) for path in paths}
    return [path for path in paths if path not in replaced]


def _whole(path: Path) -> Report:
    manifest = directory.verify(path)
    if path in search.candidates(path.parent):
        search.describe(path)  # its name is that of its step
    framework, world_size = (manifest.origin.get(key) for key in ("framework", "world_size"))
    return Report(
        path,
        info=manifest.info(path),
        num_bytes=sum(entry.size for entry in manifest.files),
        monitor=_monitor(path, manifest),
        framework=framework if isinstance(framework, str) else None,
        world_size=world_size if isinstance(world_size, int) else None,
    )


def _monitor(path: Path, manifest: Manifest) -> str | None:
    """The metric that decides, as its state has it."""
    for entry in manifest.files:
        if entry.name == TREE_FILE:
            content = directory.read_file(path / TREE_FILE, entry.size)
            entry.check(content)
            try:
                monitor = json.loads(content)["trainer"]["best"]["monitor"]
            except (LookupError, TypeError, ValueError, RecursionError):
                return None  # the weights alone, or nothing that a run has written
            return monitor if isinstance(monitor, str) else None
    return None


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a directory from one that took its place; numbers of inodes are used again."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns
