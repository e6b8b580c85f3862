"""A sweep: Hydra names the jobs, each is a run of its own, a table closes it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from expkit.config.handover import hand_to_hydra
from expkit.config.validation import Composition, check
from expkit.core.monitor import Monitor
from expkit.job import run_job
from expkit.run.directory import RunDirectory
from expkit.run.sweep import COLUMNS, SweepJob, SweepRecord, table

log = logging.getLogger(__name__)


class JobError(RuntimeError):
    """A job of a sweep that did not complete; tells Hydra's launcher."""


def run_sweep(first: Composition, argv: Sequence[str], config_dir: str | None) -> int:
    """Run all jobs of a command line with ``-m``.

    A job that fails does not stop the others.

    Args:
        first: the composition of the first values.
        argv: the command line.
        config_dir: the user's ``--config-dir``.

    Returns:
        0 where all jobs completed, 130 or 143 after a stop signal, else 1.
    """
    given = first.hydra.get("sweep.dir")
    name, root = first.config["name"], Path(first.config["output_dir"])
    sweep = RunDirectory.at(Path(given)).path if given else RunDirectory.create_sweep(root, name)
    interrupted: list[int] = []

    def job(node: Any) -> float | None:
        overrides = list(HydraConfig.get().overrides.task)
        number = int(HydraConfig.get().job.num)
        composition = check(overrides, config_dir=config_dir)
        own = _swept(overrides, first.overrides)
        run = RunDirectory.job(sweep, number, "-".join(own) or name)
        outcome = run_job(composition.config, overrides, run, sys.argv)
        SweepRecord(sweep).append(
            SweepJob(
                job=number,
                overrides=tuple(own),
                status=outcome.status,
                objective=outcome.objective,
                directory=run.path,
                seconds=outcome.seconds,
                error=outcome.error,
            )
        )
        if outcome.status == "interrupted":
            interrupted.append(outcome.exit_code)
            raise KeyboardInterrupt
        if outcome.status == "failed":
            raise JobError(outcome.error)
        return outcome.objective

    try:
        hand_to_hydra([*argv, f"hydra.sweep.dir={sweep}"], job)
    except (JobError, KeyboardInterrupt):
        pass  # told by the job itself, and once more in the table
    jobs = SweepRecord(sweep).read()
    _show(sweep, jobs, first.config["monitor"])
    if interrupted:
        return interrupted[0]
    return 0 if all(job.status == "completed" for job in jobs) else 1


def _swept(overrides: Sequence[str], given: Sequence[str]) -> list[str]:
    """What distinguishes a job: its overrides that were not given as they are."""
    return [text for text in overrides if text not in given]


def _show(sweep: Path, jobs: Sequence[SweepJob], monitor: str | None) -> None:
    """Print the table of all jobs, the best first."""
    larger = Monitor.parse(monitor).larger_is_better if monitor else True
    rows = [COLUMNS, *table(jobs, larger_is_better=larger)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    failed = sum(job.status != "completed" for job in jobs)
    lines.append(f"{len(jobs)} jobs, {failed} not completed, in {sweep}")
    sys.stdout.write("\n".join(line.rstrip() for line in lines) + "\n")
