"""What a run was doing when it was killed, as its directory tells."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.faults.traces import last_step

IN_A_SAVE = ("writing a checkpoint", "before the rename", "after the rename", "pruning")
PHASES = (
    "before the run",
    "before the first save",
    "resuming",
    "a step",
    *IN_A_SAVE,
    "the end",
)
_TEMPORARY = re.compile(r"\.step-(\d+)\.[0-9a-f]+\.tmp")


@dataclass(frozen=True)
class Moment:
    """A run directory at a moment.

    Attributes:
        run: the directory; None where there is none yet.
        checkpoints: the oldest first.
        hidden: what else is beside them, for a while.
        log_bytes: how much the log has.
        records: says whether metrics.jsonl has changed.
    """

    run: Path | None
    checkpoints: tuple[Path, ...] = ()
    hidden: frozenset[str] = frozenset()
    log_bytes: int = 0
    records: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, outputs: Path) -> Moment:
        """Of the newest run below an output directory."""
        run = max((file.parent for file in outputs.glob("*/*/run.json")), default=None)
        if run is None:
            return cls(None)
        checkpoints = tuple(sorted((run / "checkpoints").glob("step-*")))
        hidden = frozenset(path.name for path in (run / "checkpoints").glob(".*"))
        log, records = _stat(run / "train.log"), _stat(run / "metrics.jsonl")
        return cls(run, checkpoints, hidden, log[0], records)

    @property
    def can_go_on(self) -> bool:
        """Whether the directory says what the run was made from."""
        return self.run is not None and (self.run / "overrides.yaml").is_file()

    def said_since(self, before: Moment) -> str:
        """What the log has had since."""
        if self.run is None or not (self.run / "train.log").exists():
            return ""
        start = before.log_bytes if before.run == self.run else 0
        return (self.run / "train.log").read_bytes()[start:].decode()


def resumed_at(said: str) -> int | None:
    """The step that a launch went on from; None where it did not come so far."""
    found = re.search(r"resumed from .*step (\d+)", said)
    return None if found is None else int(found[1])


def phase(before: Moment, after: Moment, steps: int) -> str:
    """What was under way in a launch that began at ``before`` and was killed at ``after``.

    Args:
        before: right before it was started.
        after: when it was dead.
        steps: how many the whole run makes.
    """
    run = after.run
    if run is None or not after.can_go_on:
        return "before the run"
    newest = max((int(path.name[5:13]) for path in after.checkpoints), default=0)
    new = after.hidden - (before.hidden if before.run == run else frozenset())
    for match in filter(None, map(_TEMPORARY.fullmatch, new)):
        if int(match[1]) <= newest:
            return "pruning"
        is_complete = (run / "checkpoints" / match[0] / "MANIFEST.json").exists()
        return "before the rename" if is_complete else "writing a checkpoint"
    is_new = newest > 0 and after.checkpoints[-1] not in before.checkpoints
    if is_new and _named_last(run) != newest:
        return "after the rename"
    said = after.said_since(before)
    if before.checkpoints and (resumed_at(said) is None or last_step(run) <= resumed_at(said)):
        return "resuming"
    if newest == 0:
        return "before the first save"
    return "the end" if last_step(run) == steps == newest else "a step"


def _named_last(run: Path) -> int | None:
    try:
        return int(json.loads((run / "checkpoints/last.json").read_bytes())["step"])
    except FileNotFoundError:
        return None


def _stat(file: Path) -> tuple[int, int]:
    """The size of a file, and which one it is."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_ino
