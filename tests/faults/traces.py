"""What a run leaves behind, without times: equal where one was killed and another was not."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from expkit.checkpoint import CheckpointStore
from expkit.run.records import read_records

TIMES = frozenset(("/trainer/progress/seconds",))
"""Of a state, what no two runs have in common."""
_OF_THE_RESULT = ("status", "steps", "epochs", "metrics", "best_eval", "best_step", "reason")


@dataclass(frozen=True)
class Traces:
    """What a completed run has left.

    Attributes:
        last: a digest of each leaf of the last checkpoint's state, by its path.
        best: the same of the best checkpoint.
        records: the lines of metrics.jsonl.
        points: the steps of each scalar in TensorBoard.
        result: of run.json.
    """

    last: Mapping[str, str]
    best: Mapping[str, str]
    records: tuple[str, ...]
    points: Mapping[str, tuple[int, ...]]
    result: Mapping[str, Any]

    @classmethod
    def of(cls, run: Path) -> Traces:
        """Read them."""
        store = CheckpointStore(run / "checkpoints")
        (last, _), (best, _) = store.load("last"), store.load("best")
        store.close()
        told = json.loads((run / "run.json").read_bytes())
        result = {"status": told["status"], **(told["result"] or {})}
        return cls(
            last=dict(_digests(last)),
            best=dict(_digests(best)),
            records=tuple(_records(run / "metrics.jsonl")),
            points=_points(run / "tensorboard"),
            result={key: result[key] for key in _OF_THE_RESULT if key in result},
        )

    def differences(self, other: Traces) -> list[str]:
        """What is not the same in ``other``, some examples of each kind."""
        found = []
        for name in ("last", "best", "points", "result"):
            one, two = vars(self)[name], vars(other)[name]
            keys = [key for key in sorted({*one, *two}) if one.get(key) != two.get(key)]
            if keys:
                found.append(f"{name}: {len(keys)} differ, such as {', '.join(keys[:3])}")
        if self.records != other.records:
            pairs = zip(self.records, other.records, strict=False)
            first = next((f"{one} != {two}" for one, two in pairs if one != two), "none in common")
            found.append(
                f"metrics.jsonl: {len(other.records)} lines for {len(self.records)}: {first}"
            )
        return found


def leftovers(run: Path) -> list[str]:
    """What only a writer that died can have left."""
    pattern = re.compile(r"\..+\.tmp|.+\.replaced")
    return sorted(
        str(path.relative_to(run)) for path in run.rglob("*") if pattern.fullmatch(path.name)
    )


def last_step(run: Path) -> int:
    """The last training step that was recorded."""
    records = read_records(run / "metrics.jsonl")
    return max((record.step for record in records if record.split == "train"), default=0)


def _digests(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _digests(value, f"{path}/{key}")
    elif path not in TIMES:
        if isinstance(tree, np.ndarray):
            content = str((tree.dtype, tree.shape)).encode() + tree.tobytes()
        else:
            content = json.dumps(tree).encode()
        yield path, hashlib.sha256(content).hexdigest()


def _records(file: Path) -> Iterator[str]:
    """The lines, those that are torn as they are."""
    for line in file.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            yield line
            continue
        del record["time"]
        yield json.dumps(record)


def _points(directory: Path) -> dict[str, tuple[int, ...]]:
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it tells of each file but the first
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    names = [name for name in events.Tags()["scalars"] if name.startswith(("train/", "eval/"))]
    return {name: tuple(event.step for event in events.Scalars(name)) for name in names}
