"""One rank of a job from its log to its outcome; rank 0 keeps the run's status as well."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from expkit.checkpoint.search import newest_step
from expkit.core.errors import CheckpointError, ExpkitError, RankError, RunDirectoryError
from expkit.core.result import Result
from expkit.job import Job
from expkit.launch.environment import Place
from expkit.launch.signals import StopSignals
from expkit.outcome import Outcome, arose_elsewhere, resume_command, shown, summary
from expkit.run.lock import RunLock
from expkit.run.logs import IN_FILE_ONLY, RunLog
from expkit.worker import Pulse, work

log = logging.getLogger(__name__)


class Execution:
    """Carries out a job as one rank of it. Errors end in the outcome, not in a traceback.

    Args:
        job: what is to be done.
        place: this process among the ranks; None where it is the only one.
        follow: told how to see whether the work goes on.

    Attributes:
        failure: the error that ended the work here; None where none did.
    """

    def __init__(
        self, job: Job, place: Place | None = None, follow: Callable[[Pulse], None] | None = None
    ) -> None:
        self.failure: BaseException | None = None
        self._job = job
        self._run = job.open()
        self._rank, self._world_size = (place.rank, place.world_size) if place else (0, 1)
        self._is_supervised = place is not None and place.is_supervised
        self._speaks = self._rank == 0 or not self._is_supervised
        self._follow = follow or (lambda _: None)
        self._signals = StopSignals()
        self._has_begun = False
        self._started = time.monotonic()

    def carry_out(self) -> Outcome:
        """Do the work, and keep and say how it ended."""
        job, run = self._job, self._run
        with self._signals, self._ownership(), self._log() as run_log:
            try:
                if job.changes is None:  # a run that goes on stays as it was until it can
                    self._begin()
                log.info("run      %s", shown(run.path))
                result = work(job, run, run_log, self._signals, self._begin, self._follow)
            except KeyboardInterrupt as stop:
                self._signals.ignore()  # what remains to be done must be done
                return self._interrupted(str(stop) or "KeyboardInterrupt", None)
            except (Exception, SystemExit) as error:
                self._signals.ignore()
                return self._failed(error)
            self._signals.ignore()
            return self._ended(result)

    @contextmanager
    def _ownership(self) -> Iterator[None]:
        """Rank 0 holds the run directory for all, unless their supervisor does."""
        if self._rank or self._is_supervised:
            yield
        else:
            with RunLock(self._run.path, self._run.status_file):
                yield

    def _log(self) -> RunLog:
        return RunLog(self._run.path, self._rank, console=self._speaks)

    def _begin(self) -> None:
        """Enter the status ``running``; from here on the status follows the run."""
        job, config = self._job, self._job.config
        if self._rank or self._has_begun:
            return
        for change in job.changes or ():
            log.info("changed  %s", change)
        if job.changes:
            job.keep_config()
        self._run.start(
            argv=["expkit", *job.argv],
            task=config["task"],
            driver=job.driver,
            world_size=self._world_size,
            seed=config["seed"],
            name=config["name"],
            tags=config["tags"],
        )
        self._has_begun = True

    def _ended(self, result: Result) -> Outcome:
        """A run that ended by itself, or in order after a stop signal."""
        if result.status == "interrupted":
            return self._interrupted(result.reason or "a stop signal", result)
        if result.status == "failed":  # trainer.on_exception=ignore: told already, and no failure
            self._run.fail(ExpkitError(result.reason), "")
            return self._outcome("failed", 0, result.objective, result.reason)
        unkept = self._keep_result(result)
        for line in summary(self._run, self._job.config["task"], result):
            log.info(line)
        if unkept is None:
            return self._outcome("completed", 0, result.objective)
        log.error("the run has completed, but its result is not kept: %s", unkept)
        return self._outcome("failed", 1, result.objective, in_a_line(unkept))

    def _keep_result(self, result: Result) -> RunDirectoryError | None:
        """Enter the status ``completed``; returns why that cannot be written, where it cannot."""
        if self._has_begun:
            try:
                self._run.complete(result.to_dict())
            except RunDirectoryError as error:
                return error
        return None

    def _interrupted(self, reason: str, result: Result | None) -> Outcome:
        if self._has_begun:
            self._run.interrupt(reason, result.to_dict() if result else None)
        if result or not self._is_supervised:  # else the supervisor tells, which knows what for
            after = f" after step {result.steps}{self._kept(result)}" if result else ""
            log.warning("interrupted by %s%s", reason, after)
        if result and self._newest_step() is not None:
            log.info("go on    %s", resume_command(self._run.path, self._job.argv))
        objective = result.objective if result else None
        exit_code = self._signals.exit_code_of(reason)
        return self._outcome("interrupted", exit_code, objective, reason)

    def _newest_step(self) -> int | None:
        """Of the checkpoints; None where there is none, or where that cannot be seen."""
        try:
            return newest_step(self._run.checkpoints)
        except CheckpointError:
            return None

    def _kept(self, result: Result) -> str:
        """Where a run that goes on will begin, if not where this one has ended."""
        try:
            step = newest_step(self._run.checkpoints)
        except CheckpointError:
            return ""
        if step is None:
            return ", nothing is saved"
        return "" if step == result.steps else f", saved after step {step}"

    def _failed(self, error: BaseException) -> Outcome:
        """What expkit raises on purpose is told in its own words, all else by its traceback."""
        self.failure = error
        if self._has_begun:
            self._run.fail(error, "".join(traceback.format_exception(error)))
        # The rank that failed has more to say than those which noticed it.
        where = IN_FILE_ONLY if isinstance(error, RankError) else {}
        texts = list(told(error))
        if self._rank == 0 and self._world_size > 1:  # the lines of other ranks name theirs
            texts = [*details(error), f"rank 0: {in_a_line(error)}"]
        for text in texts:
            log.error("%s", text, extra=where)
        log.info("failed; the log is in %s", shown(self._run.path), extra=where)
        exit_code = error.exit_code if isinstance(error, ExpkitError) else 1
        return self._outcome("failed", exit_code, None, in_a_line(error))

    def _outcome(
        self, status: str, exit_code: int, objective: float | None, error: str | None = None
    ) -> Outcome:
        seconds = round(time.monotonic() - self._started, 3)
        return Outcome(status, exit_code, objective, self._run.path, seconds, error)


def told(error: BaseException) -> Iterator[str]:
    """What an error says to the user: the traceback of other people's code, then our own words."""
    cause = error.__cause__ if isinstance(error, ExpkitError) else error
    if cause is not None and (cause is error or arose_elsewhere(cause)):
        yield "".join(traceback.format_exception(cause)).rstrip()
    if cause is not error:
        yield str(error)


def details(error: BaseException) -> list[str]:
    """What `told` gives but for words that `in_a_line` repeats."""
    *texts, last = told(error)
    return texts if last == str(error) and "\n" not in last else [*texts, last]


def in_a_line(error: BaseException) -> str:
    """Type and message of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
