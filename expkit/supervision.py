"""A distributed job on one machine: its ranks are started, watched, and started again if asked."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

from expkit.core.errors import RankError, RunDirectoryError
from expkit.job import Job
from expkit.launch.devices import ranks_of
from expkit.launch.supervisor import Ended, RankFailure, Supervisor
from expkit.outcome import Outcome, shown
from expkit.run.directory import RunDirectory
from expkit.run.lock import RunLock
from expkit.run.logs import IN_FILE_ONLY, RunLog

Info = dict[str, Any]
"""What ``run.json`` says."""

log = logging.getLogger(__name__)

RANK_COMMAND = (sys.executable, "-m", "expkit.rank")


def supervise(job: Job) -> Outcome:
    """Carry out a distributed job in processes of its own; this one only watches.

    Args:
        job: with its run directory.

    Returns:
        What rank 0 told, or why the ranks failed.

    Raises:
        RunDirectoryError: another process is at work in the run directory.
    """
    run = job.open()
    with RunLock(run.path, run.status_file):  # for all ranks, which end when this process does
        return _carry_out(job, run)


def _carry_out(job: Job, run: RunDirectory) -> Outcome:
    restarts = job.config["driver"]["max_restarts"]
    before = run.look_after()
    while True:
        ended = _start(job)
        if not ended.failures:
            return _outcome(run, before, ended)
        cause = ended.failures[0]
        if ended.stopped_by is not None or job.attempt >= restarts or ended.exit_code == 2:
            return _failed(run, before, ended)
        job = job.again()
        with RunLog(run.path):
            log.error("%s", cause.traceback, extra=IN_FILE_ONLY)
            log.warning(
                "%s; start %d of %d, from %s",
                _in_a_line(cause),
                job.attempt + 1,
                restarts + 1,
                "the last checkpoint" if job.config["resume"] else "the beginning",
            )


def _start(job: Job) -> Ended:
    driver = job.config["driver"]
    devices = ranks_of(driver["num_processes"], driver["device"])
    supervisor = Supervisor(
        command=RANK_COMMAND,
        job=job.to_json(),
        framework=driver["framework"],
        num_processes=len(devices),
        devices=devices,
        logs=job.open().logs,
        worker_output=driver["worker_output"],
        timeout_s=driver["timeout_s"],
        attempt=job.attempt,
    )
    return supervisor.run()


def _outcome(run: RunDirectory, before: Info, ended: Ended) -> Outcome:
    """What rank 0 told of the end; nothing where the ranks were stopped before it could."""
    if ended.outcome is not None:
        outcome = Outcome(**{**ended.outcome, "directory": run.path})
        if outcome.status == "interrupted" and not _has_trained(run, before):
            _tell_of_stop(run, str(outcome.error))
        return outcome
    reason = ended.stopped_by.name if ended.stopped_by is not None else "a stop signal"
    _tell_of_stop(run, reason)
    if run.info()["status"] in ("created", "running"):  # else one that goes on stays as it was
        run.interrupt(reason)
    return Outcome("interrupted", ended.exit_code, None, run.path, 0.0, reason)


def _failed(run: RunDirectory, before: Info, ended: Ended) -> Outcome:
    """Tell the cause, once, and keep it where rank 0 could not."""
    cause = ended.failures[0]
    if not _is_told(ended):
        with RunLog(run.path):
            if cause.traceback and not cause.is_shown:
                log.error("%s", cause.traceback)
            log.error("%s", _in_a_line(cause))
            log.info("failed; the logs are in %s", shown(run.path))
        _keep(run, before, cause)
    return Outcome("failed", ended.exit_code, None, run.path, 0.0, _in_a_line(cause))


def _keep(run: RunDirectory, before: Info, cause: RankFailure) -> None:
    """Enter the status ``failed``; a run that was to go on, and could not, stays as it was."""
    try:
        info = run.info()
        if info != before or info["status"] in ("created", "running"):
            run.fail(RankError(_in_a_line(cause)), cause.traceback)
    except RunDirectoryError as error:
        sys.stderr.write(f"{error}\n")


def _has_trained(run: RunDirectory, before: Info) -> bool:
    """Whether rank 0 got as far as to a result, of which it has told."""
    info = run.info()
    return info != before and info["result"] is not None


def _tell_of_stop(run: RunDirectory, reason: str) -> None:
    with RunLog(run.path):
        log.warning("interrupted by %s", reason)


def _is_told(ended: Ended) -> bool:
    """Whether rank 0, which has the console, has said what there is to say."""
    what = _same_on_all(ended.failures[0])
    reported = [each for each in ended.failures if each.rank == 0 and each.is_reported]
    return any(_same_on_all(each) == what for each in reported)


def _same_on_all(failure: RankFailure) -> str:
    """What failed, in words that do not depend on the rank that tells it."""
    return re.sub(r"\brank \d+", "rank", failure.what)


def _in_a_line(failure: RankFailure) -> str:
    return f"rank {failure.rank}: {failure.what.splitlines()[0]}"
