"""A sweep: Hydra names the jobs, each is a run of its own, a table closes it."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from expkit.command_line import override
from expkit.config.handover import for_hydra, hand_to_hydra
from expkit.config.schema import GROUPS
from expkit.config.validation import Composition, check
from expkit.core.errors import ConfigError, ExpkitError, Problem
from expkit.core.monitor import Monitor
from expkit.job import check_beginning, new_job
from expkit.launch.signals import StopSignals
from expkit.lineage import with_inherited
from expkit.outcome import Outcome, counted, shown
from expkit.run.directory import RunDirectory
from expkit.run.logs import LOG_FILE
from expkit.run.sweep import COLUMNS, SweepJob, SweepRecord, table
from expkit.runner import carry_out

_CELL_CHARS = 100
_ROW_CHARS = 160
"""The width of a table where there is no wider terminal; its last column may take all of it."""


def run_sweep(first: Composition, argv: Sequence[str], config_dir: str | None) -> int:
    """Run all jobs of a command line with ``-m``.

    A job that fails does not stop the others; a stop signal ends the job under way and the sweep.

    Args:
        first: the composition of the first values.
        argv: the command line.
        config_dir: the user's ``--config-dir``.

    Returns:
        0 where all jobs completed, 130 or 143 after a stop signal, else 1.

    Raises:
        ConfigError: the jobs would all go on in the same run directory.
    """
    if first.config["resume"] is not None:
        message = "cannot be used with -m: the jobs would share one run directory"
        raise ConfigError([Problem("resume", message, "init_from=... to start each from weights")])
    given = first.hydra.get("sweep.dir")
    name, root = first.config["name"], Path(first.config["output_dir"])
    path = RunDirectory.at(Path(given)).path if given else RunDirectory.create_sweep(root, name)
    sweep = _Sweep(path, first, argv, config_dir)
    flags = ["--multirun"] if config_dir is None else ["--multirun", "--config-dir", config_dir]
    overrides = [_for_hydra(text) for text in first.overrides]
    with StopSignals() as signals:
        try:
            hand_to_hydra(
                [*flags, *overrides, override("hydra.sweep.dir", str(path))], lambda _: sweep.job()
            )
        except KeyboardInterrupt:
            sweep.stop_code = sweep.stop_code or signals.exit_code
    jobs = SweepRecord(path).read()
    _show(path, jobs, first.config["monitor"])
    if sweep.stop_code is not None:
        return sweep.stop_code
    return 0 if jobs and all(job.status == "completed" for job in jobs) else 1


class _Sweep:
    """The jobs of a sweep.

    Attributes:
        stop_code: the exit code of a job that a stop signal ended; None where none did.
    """

    def __init__(
        self, path: Path, first: Composition, argv: Sequence[str], config_dir: str | None
    ) -> None:
        self.stop_code: int | None = None
        self._path = path
        self._given = {_for_hydra(text): text for text in first.overrides}
        self._argv = argv
        self._config_dir = config_dir

    def job(self) -> float | None:
        """Carry out the job that Hydra is at.

        Returns:
            What a search compares: NaN for a job that failed.

        Raises:
            KeyboardInterrupt: a stop signal ended it, and so the sweep.
        """
        number = int(HydraConfig.get().job.num)
        texts = list(HydraConfig.get().overrides.task)
        own = [_as_written(text) for text in texts if text not in self._given]
        overrides = [self._given.get(text) or _as_written(text) for text in texts]
        try:
            outcome = self._run(number, overrides, "-".join(own))
        except ExpkitError as error:  # this one cannot be run; the values of others may be right
            sys.stderr.write(f"expkit: job {number}: {error}\n")
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            outcome = Outcome("failed", error.exit_code, None, self._path, 0.0, text)
        SweepRecord(self._path).append(
            SweepJob(
                job=number,
                overrides=tuple(own),
                status=outcome.status,
                objective=outcome.objective,
                directory=outcome.directory,
                seconds=outcome.seconds,
                error=outcome.error,
            )
        )
        if outcome.status == "interrupted":
            self.stop_code = outcome.exit_code
            raise KeyboardInterrupt
        return math.nan if outcome.status == "failed" else outcome.objective

    def _run(self, number: int, overrides: Sequence[str], name: str) -> Outcome:
        with _outside_hydra():
            inherited = with_inherited(overrides, self._config_dir)
            composition = check(inherited, config_dir=self._config_dir)
        check_beginning(composition)
        run = RunDirectory.job(self._path, number, name or composition.config["name"])
        return carry_out(new_job(composition, run, self._argv))


@contextmanager
def _outside_hydra() -> Iterator[None]:
    """Let a config be composed while Hydra carries out a job: it holds one state a process."""
    state = GlobalHydra.instance()
    outer = state.hydra
    state.clear()
    try:
        yield
    finally:
        state.hydra = outer


def _for_hydra(text: str) -> str:
    """An override as Hydra wants it for all jobs.

    A key that only some of the swept options have would be refused, for Hydra composes with none of
    them first; that each job has it has been checked.
    """
    text = for_hydra(text)
    key = text.partition("=")[0]
    group, _, inner = key.partition(".")
    if group not in GROUPS or not inner:
        return text
    is_swept = OverridesParser.create().parse_override(text).is_sweep_override()
    return text if is_swept else f"++{text}"


def _as_written(text: str) -> str:
    """A job's own override without the mark that `for_hydra` gave it."""
    bare = text.lstrip("+")
    return bare if for_hydra(bare) == text else text


def _show(path: Path, jobs: Sequence[SweepJob], monitor: str | None) -> None:
    """Print the table of all jobs, the best first."""
    larger = Monitor.parse(monitor).larger_is_better if monitor else True
    rows = [COLUMNS, *table(jobs, larger_is_better=larger)]
    rows = [tuple(cell.replace(f"{path}/", "") for cell in row) for row in rows]
    others = [tuple(_cut(cell, _CELL_CHARS) for cell in row[:-1]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*others, strict=True)]
    room = max(_ROW_CHARS, shutil.get_terminal_size().columns)
    lines = []
    for row, cells in zip(rows, others, strict=True):
        left = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        # What went wrong is worth a second line, but not a third.
        lines.append((left + _cut(row[-1], max(_CELL_CHARS, room - len(left)))).rstrip())
    missing = [job for job in jobs if job.status != "completed"]
    lines.append(f"{counted(len(jobs), 'job')}, {len(missing)} not completed, in {shown(path)}")
    lines += [f"{job.status}: see {shown(job.directory / LOG_FILE)}" for job in missing]
    sys.stdout.write("\n".join(["", *lines]) + "\n")


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 3] + "..."
