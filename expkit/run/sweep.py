"""sweep.jsonl: what became of the jobs of a sweep, one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expkit.core.errors import RunDirectoryError
from expkit.run.lines import LineFile
from expkit.run.strict_json import encode_line

SWEEP_FILE = "sweep.jsonl"
COLUMNS = ("", "job", "status", "objective", "seconds", "overrides", "directory or error")


@dataclass(frozen=True, slots=True)
class SweepJob:
    """The outcome of one job.

    Attributes:
        job: its number in the sweep.
        overrides: what distinguishes it, as written.
        status: ``completed``, ``failed`` or ``interrupted``.
        objective: the value that is searched for; None where there is none.
        directory: its run directory.
        seconds: how long it took.
        error: type and message of what ended it, in one line; None where nothing did.
    """

    job: int
    overrides: tuple[str, ...]
    status: str
    objective: float | None
    directory: Path
    seconds: float
    error: str | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether it can be compared with others."""
        return (
            self.status == "completed"
            and self.objective is not None
            and not math.isnan(self.objective)
        )


class SweepRecord:
    """The jobs of a sweep on disk. A job that ran again counts by its last line.

    Args:
        directory: the sweep's directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / SWEEP_FILE
        self._directory = directory

    def append(self, job: SweepJob) -> None:
        """Add a line.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        entry = asdict(job) | {"directory": self._inside(job.directory)}
        file = LineFile(self.path)
        try:
            file.append(encode_line(entry))
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.path}: {error.strerror}") from error
        finally:
            file.close()

    def read(self) -> list[SweepJob]:
        """The jobs by number; none where none has ended. Lines cut short are left out."""
        if not self.path.exists():
            return []
        jobs: dict[int, SweepJob] = {}
        for line in self.path.read_bytes().splitlines():
            try:
                job = self._parse(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            jobs[job.job] = job
        return [jobs[number] for number in sorted(jobs)]

    def _parse(self, entry: dict[str, Any]) -> SweepJob:
        objective = entry["objective"]
        return SweepJob(
            job=int(entry["job"]),
            overrides=tuple(entry["overrides"]),
            status=entry["status"],
            objective=None if objective is None else float(objective),
            directory=self._directory / entry["directory"],
            seconds=float(entry["seconds"]),
            error=entry["error"],
        )

    def _inside(self, directory: Path) -> str:
        """Relative to the sweep where it can be, so that a sweep may be moved."""
        if directory.is_relative_to(self._directory):
            directory = directory.relative_to(self._directory)
        return str(directory)


def table(jobs: Sequence[SweepJob], *, larger_is_better: bool) -> list[tuple[str, ...]]:
    """Rows for a table with the columns `COLUMNS`.

    Returns:
        The best first and marked by ``*``, those that cannot be ranked last.
    """
    sign = -1.0 if larger_is_better else 1.0
    ranked = sorted(
        (job for job in jobs if job.is_ranked), key=lambda job: sign * (job.objective or 0.0)
    )
    others = [job for job in jobs if not job.is_ranked]
    rows: list[tuple[str, ...]] = []
    for place, job in enumerate([*ranked, *others]):
        rows.append(
            (
                "*" if place == 0 and ranked else "",
                str(job.job),
                job.status,
                "" if job.objective is None else f"{job.objective:.6g}",
                f"{job.seconds:.1f}",
                " ".join(job.overrides),
                job.error or str(job.directory),
            )
        )
    return rows
