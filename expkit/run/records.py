"""metrics.jsonl: the source of truth for the numbers of a run, one JSON object a line.

``{"step":10,"epoch":0,"time":1796022723.125,"split":"train","metrics":{"loss":0.5}}``: ``step``
counts optimizer steps from 1, ``epoch`` from 0, ``time`` is in seconds since 1970 UTC and never
goes back while the process lives. The lines are strict JSON; see `expkit.run.strict_json` for
numbers that are not finite.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from expkit.core.logger import Split
from expkit.run.clock import WallClock
from expkit.run.lines import LineFile, keep_lines
from expkit.run.loggers import FileLogger
from expkit.run.regular import read_regular
from expkit.run.strict_json import encode_line

METRICS_FILE = "metrics.jsonl"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """One line: the metrics of a split at a step."""

    step: int
    epoch: int
    time: float
    split: Split
    metrics: dict[str, float]


class JsonLinesLogger(FileLogger):
    """Appends a line a record. After a failed write it tries again with the next record.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / METRICS_FILE)
        self._file = LineFile(self.path)
        self._clock = WallClock()

    def rewind(self, step: int) -> None:
        """Drop the lines of later steps."""
        self._file.close()
        truncate_after(self.path, step)

    def _record(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        line = {
            "step": step,
            "epoch": epoch,
            "time": round(self._clock.now(), 3),
            "split": split,
            "metrics": metrics,
        }
        self._file.append(encode_line(line))

    def _release(self) -> None:
        self._file.close()


def read_records(path: Path) -> list[Record]:
    """The records of a run as they were written; none where there is no file: nothing was logged.

    Lines cut short by a killed process are left out; one that is not the last is reported.
    """
    if not path.exists():
        return []
    records: list[Record] = []
    lines = read_regular(path).splitlines()
    for number, line in enumerate(lines, 1):
        record = _parse(line)
        if record is not None:
            records.append(record)
        elif number < len(lines):
            log.warning("%s: line %d is damaged and left out", path, number)
    return records


def truncate_after(path: Path, step: int) -> None:
    """Drop the records of steps after ``step``, and damaged lines, atomically."""

    def wanted(line: bytes) -> bool:
        record = _parse(line)
        return record is not None and record.step <= step

    keep_lines(path, wanted)


def _parse(line: bytes) -> Record | None:
    """The record of a line; None for one that is damaged."""
    try:
        entry = json.loads(line)
        metrics = {name: _number(value) for name, value in entry["metrics"].items()}
        record = Record(entry["step"], entry["epoch"], entry["time"], entry["split"], metrics)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_whole = (
        type(record.step) is type(record.epoch) is int
        and isinstance(record.time, int | float)
        and isinstance(record.split, str)
    )
    return record if is_whole else None


def _number(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value
