"""What can be said of the checkpoints that are on the disk, also while a run goes on saving."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expkit.checkpoint import directory, search
from expkit.checkpoint.convert import weights_of
from expkit.checkpoint.manifest import MANIFEST_FILE, DamageError
from expkit.checkpoint.retention import Retention
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
        is_last, is_best: whether it is the newest of the whole ones it was examined with, and the
            one with the greatest score.
    """

    path: Path
    damage: str = ""
    info: CheckpointInfo | None = None
    num_bytes: int = 0
    monitor: str | None = None
    framework: str | None = None
    world_size: int | None = None
    is_last: bool = False
    is_best: bool = False


def is_checkpoint(path: Path) -> bool:
    """Whether a path is that of one checkpoint, damaged or not."""
    try:
        return (path / MANIFEST_FILE).is_file() or _is_candidate(path)
    except OSError:
        return False


def examine(path: Path) -> Report | None:
    """Read one checkpoint as it is read to go on from it: what is told to be whole can be used.

    Returns:
        None where it is gone: the run has retired it.
    """
    report = _examine(path, _is_candidate(path))
    if report is None or report.info is None:
        return report
    return replace(report, is_last=True, is_best=report.info.score is not None)


def examine_all(root: Path) -> Iterator[Report]:
    """Examine all checkpoints below ``root``, the latest first; each is given once it is known.

    Raises:
        CheckpointError: ``root`` cannot be read, or the run retires its checkpoints faster than
            they can be read.
    """
    for _ in range(_MOST_ROUNDS):
        paths = _settled(search.candidates(root))
        known = _down_to_the_best(paths)
        best = next((report for report in known.values() if report and not report.damage), None)
        last = None
        is_any_there = not paths
        for path in paths:
            report = known[path] if path in known else _examine(path, True)
            if report is None:
                continue
            is_any_there = True
            if last is None and not report.damage:
                last = report
            yield replace(report, is_last=report is last, is_best=report is best)
        if is_any_there:
            return
    raise CheckpointError(
        f"each checkpoint in {root} was replaced by a later one before it was read; look again "
        "when the run has ended, or keep more of them (checkpoint.keep_last)"
    )


def _down_to_the_best(paths: Iterable[Path]) -> dict[Path, Report | None]:
    """What is found of those with the greatest scores, up to the first that is whole.

    They are examined first, so that the line of the best can say that it is.
    """
    infos = []
    for path in paths:
        with suppress(DamageError):
            infos.append(search.describe(path))
    known: dict[Path, Report | None] = {}
    for info in Retention(keep_last=None, keep_best=None).ranked(infos):
        if info.path is not None:
            known[info.path] = report = _examine(info.path, True)
            if report and not report.damage:
                break
    return known


def _settled(paths: list[Path]) -> list[Path]:
    """Without those that have a successor of the same step and only wait to be removed."""
    replaced = {directory.aside(path) for path in paths}
    return [path for path in paths if path not in replaced]


def _is_candidate(path: Path) -> bool:
    """Whether a path is searched when the newest or the best beside it is looked for."""
    try:
        return path in search.candidates(path.parent)
    except CheckpointError:
        return False


def _examine(path: Path, is_candidate: bool) -> Report | None:
    """See `examine`; the name of a candidate has to be that of its step."""
    while True:
        before = _identity(path)
        try:
            return _whole(path, is_candidate)
        except DamageError as error:
            now = _identity(path)
            if now is None:
                return None
            if now == before:
                return Report(path, damage=str(error))
            # It was replaced by another of the same step while it was read.


def _whole(path: Path, is_candidate: bool) -> Report:
    state, manifest = directory.read(path)
    if is_candidate:
        search.describe(path)  # its name is that of its step
    _check_state(state)
    framework, world_size = (manifest.origin.get(key) for key in ("framework", "world_size"))
    return Report(
        path,
        info=manifest.info(path),
        num_bytes=sum(entry.size for entry in manifest.files),
        monitor=_monitor(state),
        framework=framework if isinstance(framework, str) else None,
        world_size=world_size if type(world_size) is int and world_size > 0 else None,
    )


def _check_state(state: Mapping[str, Any]) -> None:
    """Make sure of what a run or a conversion needs at the least."""
    try:
        weights_of(state)
    except CheckpointError as error:
        raise DamageError(str(error)) from error
    origin = state.get("origin", {})
    if not isinstance(origin, Mapping):
        raise DamageError(f"its origin is of type {type(origin).__name__}")


def _monitor(state: Mapping[str, Any]) -> str | None:
    """The metric that decides, as a state has it."""
    try:
        monitor = state["trainer"]["best"]["monitor"]
    except (LookupError, TypeError):
        return None  # the weights alone, or nothing that a run has written
    return monitor if isinstance(monitor, str) else None


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a directory from one that took its place; numbers of inodes are used again."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError:
        return 0, 0  # what cannot be looked at is not gone
    return status.st_ino, status.st_ctime_ns
