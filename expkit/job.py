"""One run from its config to its outcome: directory, log, status, result."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from expkit.checkpoint.find import check_source
from expkit.config.validation import Composition
from expkit.core.errors import CheckpointError, ConfigError, ExpkitError, Problem
from expkit.core.result import Result
from expkit.launch.installed import check_installed
from expkit.launch.signals import StopSignals
from expkit.outcome import Outcome, arose_elsewhere, nothing_left, resume_command, shown, summary
from expkit.run.directory import RunDirectory
from expkit.run.history import changed_keys, key_of, run_of, saved_config, saved_overrides
from expkit.run.lock import RunLock
from expkit.run.logs import RunLog
from expkit.worker import work

log = logging.getLogger(__name__)


def check_beginning(composition: Composition) -> None:
    """Look for what a run needs that is not in its config, before anything is made.

    Raises:
        ConfigError: the framework is not installed, there is no run or checkpoint to begin with, or
            a new directory is named for a run that goes on.
    """
    config = composition.config
    check_installed(config["driver"]["framework"])
    for key in ("resume", "init_from"):
        if config[key] is not None:
            try:
                check_source(Path(config[key]))
            except CheckpointError as error:
                raise ConfigError([Problem(key, str(error))]) from error
    if config["resume"] is not None and "run.dir" in composition.hydra:
        message = "has no effect beside resume, which goes on in the run's own directory"
        raise ConfigError([Problem("hydra.run.dir", message, "init_from=... for a new run")])


def run_job(composition: Composition, run: RunDirectory, argv: Sequence[str]) -> Outcome:
    """Run a config in a new run directory. Errors end in the outcome, not in a traceback.

    Args:
        composition: a checked config.
        run: the directory.
        argv: the command line, to be kept.
    """
    with StopSignals() as signals:
        run.write_config(_to_yaml(composition.config), composition.overrides)
        job = _Job(composition, run, argv, signals)
        job.begin()
        return job.carry_out(begin=lambda: None)


def resume_job(composition: Composition, argv: Sequence[str]) -> Outcome:
    """Go on with the run that ``resume`` names, in its directory.

    A run that has completed and is not asked for more stays as it is; so does one that cannot go
    on, but for the lines in its log.

    Args:
        composition: a checked config: the run's own, and what is given anew.
        argv: the command line, to be kept.

    Raises:
        RunDirectoryError: it names no run.
    """
    config = composition.config
    run = RunDirectory.open(run_of(Path(config["resume"])))
    before = saved_config(run.path)
    kept = {**config, "resume": None, "init_from": before.get("init_from")}
    changes = list(changed_keys(before, kept))
    info = run.info()
    if info["status"] == "completed" and not changes:
        sys.stdout.write(nothing_left(run.path, info) + "\n")
        return Outcome("completed", 0, None, run.path, 0.0)
    with StopSignals() as signals:
        job = _Job(composition, run, argv, signals)

        def begin() -> None:
            for change in changes:
                log.info("changed  %s", change)
            if changes:
                run.write_config(_to_yaml(kept), _merged(run, composition.overrides))
            job.begin()

        return job.carry_out(begin)


class _Job:
    """A run under way.

    Args:
        composition: what is run.
        run: where.
        argv: the command line.
        signals: stop signals, entered.
    """

    def __init__(
        self, composition: Composition, run: RunDirectory, argv: Sequence[str], signals: StopSignals
    ) -> None:
        self._composition = composition
        self._run = run
        self._argv = argv
        self._signals = signals
        self._has_begun = False
        self._started = time.monotonic()

    def begin(self) -> None:
        """Enter the status ``running``; from here on the status follows the run."""
        config = self._composition.config
        self._run.start(
            argv=["expkit", *self._argv],
            task=config["task"],
            driver=self._composition.choices.get("driver", config["driver"]["framework"]),
            world_size=1,
            seed=config["seed"],
            name=config["name"],
            tags=config["tags"],
        )
        self._has_begun = True

    def carry_out(self, begin: Callable[[], None]) -> Outcome:
        """Do the work, and keep and say how it ended."""
        with (
            RunLock(self._run.path, self._run.status_file),
            RunLog(self._run.path) as run_log,
        ):
            try:
                log.info("run      %s", shown(self._run.path))
                config = self._composition.config
                files = _files(self._composition)
                result = work(config, files, self._run, run_log, self._signals, begin)
            except KeyboardInterrupt as stop:
                return self._interrupted(str(stop) or "KeyboardInterrupt", None)
            except (Exception, SystemExit) as error:
                return self._failed(error)
            return self._ended(result)

    def _ended(self, result: Result) -> Outcome:
        """A run that ended by itself, or in order after a stop signal."""
        if result.status == "interrupted":
            return self._interrupted(result.reason or "a stop signal", result)
        if result.status == "failed":  # trainer.on_exception=ignore: told already, and no failure
            self._run.fail(ExpkitError(result.reason), "")
            return self._outcome("failed", 0, result.objective, result.reason)
        self._run.complete(result.to_dict())
        for line in summary(self._run, self._composition.config["task"], result):
            log.info(line)
        return self._outcome("completed", 0, result.objective)

    def _interrupted(self, reason: str, result: Result | None) -> Outcome:
        if self._has_begun:
            self._run.interrupt(reason, result.to_dict() if result else None)
        log.warning("interrupted by %s%s", reason, f" after step {result.steps}" if result else "")
        if result and any(self._run.checkpoints.glob("step-*")):
            log.info("go on    %s", resume_command(self._run.path, self._argv))
        objective = result.objective if result else None
        return self._outcome("interrupted", self._signals.exit_code, objective, reason)

    def _failed(self, error: BaseException) -> Outcome:
        """What expkit raises on purpose is told in its own words, all else by its traceback."""
        if self._has_begun:
            self._run.fail(error, "".join(traceback.format_exception(error)))
        cause = error.__cause__ if isinstance(error, ExpkitError) else error
        if cause is not None and (cause is error or arose_elsewhere(cause)):
            log.error("%s", "".join(traceback.format_exception(cause)).rstrip())
        if cause is not error:
            log.error("%s", error)
        log.info("failed; the log is in %s", shown(self._run.path))
        exit_code = error.exit_code if isinstance(error, ExpkitError) else 1
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return self._outcome("failed", exit_code, None, text)

    def _outcome(
        self, status: str, exit_code: int, objective: float | None, error: str | None = None
    ) -> Outcome:
        seconds = round(time.monotonic() - self._started, 3)
        return Outcome(status, exit_code, objective, self._run.path, seconds, error)


def _files(composition: Composition) -> dict[str, str]:
    """The file of each group, as it can be typed, but where the command line itself names code."""
    given = {key_of(text) for text in composition.overrides}
    return {
        group: shown(Path(file))
        for group, file in composition.files.items()
        if f"{group}._target_" not in given
    }


def _merged(run: RunDirectory, overrides: Sequence[str]) -> list[str]:
    """The overrides of a run that goes on: those it had, in place of which others may have come."""
    new = [text for text in overrides if key_of(text) != "resume"]
    beginning = [text for text in saved_overrides(run.path) if key_of(text) == "init_from"]
    return [*beginning, *new]


def _to_yaml(config: Mapping[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))
