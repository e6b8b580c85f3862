"""Points of a run at which a process kills itself."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

VARIABLE, WHERE = "FAULTS_TRAP", "FAULTS_RANK"
"""Where a command finds its trap, and the rank that sets it; none where there is one process."""
RANK_VARIABLES = ("RANK", "PADDLE_TRAINER_ID")

CHECKPOINT = r"/step-\d+"
TEMPORARY = r"/\.step-\d+\.[0-9a-f]+\.tmp"


USUAL = 4


@dataclass(frozen=True)
class Point:
    """A system call that changes the disk, and the moment before, after, or halfway through it.

    Attributes:
        call: its name in `os`.
        path: pattern of what it is called with: a path, or ``old -> new``.
        moment: ``half`` writes the first half of the bytes.
        usual: an occurrence that each run has, counted from 1.
        launch: which launches come here; of a run with ranks, the first is not in rank 0.
        weight: how often it is chosen, for one that is chosen once.
    """

    call: str
    path: str
    moment: Literal["before", "half", "after"]
    usual: int = USUAL
    launch: Literal["any", "first", "resumed"] = "any"
    weight: int = 1


POINTS = {
    "before the config": Point("rename", r" -> .*/config\.yaml$", "before", 1, "first"),
    "before the overrides": Point("rename", r" -> .*/overrides\.yaml$", "before", 1, "first"),
    "directory made": Point("mkdir", rf"{TEMPORARY}$", "after"),
    "weights opened": Point("open", rf"{TEMPORARY}/model\.safetensors$", "after"),
    "weights half written": Point("write", rf"{TEMPORARY}/model\.safetensors$", "half"),
    "weights before fsync": Point("fsync", rf"{TEMPORARY}/model\.safetensors$", "before"),
    "weights after fsync": Point("fsync", rf"{TEMPORARY}/model\.safetensors$", "after"),
    "before the manifest": Point("open", rf"{TEMPORARY}/MANIFEST\.json$", "before"),
    "manifest half written": Point("write", rf"{TEMPORARY}/MANIFEST\.json$", "half"),
    "manifest before fsync": Point("fsync", rf"{TEMPORARY}/MANIFEST\.json$", "before"),
    "directory before fsync": Point("fsync", rf"{TEMPORARY}$", "before"),
    "before the rename": Point("rename", rf"{TEMPORARY} -> .*{CHECKPOINT}$", "before"),
    "after the rename": Point("rename", rf"{TEMPORARY} -> .*{CHECKPOINT}$", "after"),
    "root after fsync": Point("fsync", r"/checkpoints$", "after"),
    "before last.json": Point("rename", r" -> .*/last\.json$", "before"),
    "after last.json": Point("rename", r" -> .*/last\.json$", "after"),
    "before best.json": Point("rename", r" -> .*/best\.json$", "before", 1),
    "before pruning": Point("rename", rf"{CHECKPOINT} -> .*{TEMPORARY}$", "before"),
    "pruning begun": Point("rename", rf"{CHECKPOINT} -> .*{TEMPORARY}$", "after", weight=4),
    "half pruned": Point("unlink", rf"{TEMPORARY}/", "after", weight=4),
    "pruned": Point("rmdir", rf"{TEMPORARY}$", "after"),
    "half a record": Point("write", r"/metrics\.jsonl$", "half"),
    "before status": Point("rename", r" -> .*/run\.json$", "before", 3),
    "after status": Point("rename", r" -> .*/run\.json$", "after", 3),
    "records half kept": Point(
        "write", r"/\.metrics\.jsonl\.[0-9a-f]+\.tmp$", "half", 1, "resumed"
    ),
    "before the rewind": Point("rename", r" -> .*/metrics\.jsonl$", "before", 1, "resumed"),
    "after the rewind": Point("rename", r" -> .*/metrics\.jsonl$", "after", 1, "resumed"),
}


def points_of(*, is_first: bool, has_ranks: bool) -> list[str]:
    """Those that a launch comes to."""
    own = "first" if is_first and not has_ranks else "any" if is_first else "resumed"
    return [name for name, point in POINTS.items() if point.launch in ("any", own)]


@dataclass(frozen=True)
class Trap:
    """Kills the process that sets it, when it comes to a point for a certain time.

    Attributes:
        point: one of `POINTS`.
        occurrence: counted from 1.
        kills_parent: whether it is the parent of the process that is killed.
    """

    point: str
    occurrence: int = 1
    kills_parent: bool = False

    def to_text(self) -> str:
        """For the environment of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Trap:
        """What ``to_text`` wrote."""
        return cls(**json.loads(text))

    def set(self) -> None:
        """Wait for it in this process, whichever thread comes there."""
        point = POINTS[self.point]
        left = self.occurrence

        def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                nonlocal left
                left -= re.search(point.path, _described(real.__name__, args, options)) is not None
                if left > 0:
                    return real(*args, **options)
                if point.moment == "half":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                elif point.moment == "after":
                    real(*args, **options)
                os.kill(os.getppid() if self.kills_parent else os.getpid(), signal.SIGKILL)
                return signal.pause()

            return call

        for name in ("rename", "replace") if point.call == "rename" else (point.call,):
            setattr(os, name, wrapped(getattr(os, name)))


def _described(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """What a call is about: its path, from a descriptor where it is given one."""
    if name in ("write", "fsync"):
        return _path_of(args[0])
    if name in ("rename", "replace"):
        return f"{os.fspath(args[0])} -> {os.fspath(args[1])}"
    path = os.fspath(args[0])
    directory = options.get("dir_fd")
    return path if directory is None else f"{_path_of(directory)}/{path}"


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
