"""A process that is one rank of a run.

``python -m expkit.rank`` is what expkit's own supervisor starts: it reads the job from standard
input. Under another launcher each rank has the whole command line, and rank 0 decides for all.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from expkit.builder import make_driver
from expkit.config.schema import SEVERAL, is_distributed
from expkit.config.validation import Composition
from expkit.core.errors import ConfigError, Problem, RankError
from expkit.execution import Execution, details, in_a_line
from expkit.job import Job, make_job
from expkit.launch.control import Control
from expkit.launch.environment import Place, find_place
from expkit.launch.output import open_streams
from expkit.launch.signals import STOP_SIGNALS
from expkit.run.history import key_of

_LAUNCHERS = {
    "torchrun": "torchrun",
    "paddle": "python -m paddle.distributed.launch",
    "slurm": "srun",
}


def run_in_place(
    composition: Composition, argv: Sequence[str], place: Place, multirun: bool
) -> int:
    """Carry out a command line as one of the ranks that a launcher has started.

    Args:
        composition: of this rank; that of rank 0 counts.
        argv: the command line.
        place: this process among the ranks.
        multirun: whether the command line asks for a sweep.

    Returns:
        The exit code.

    Raises:
        ConfigError: the config does not fit what the launcher has started.
    """
    _check_place(composition, argv, place, multirun)
    group = make_driver(composition.config, composition.files).group
    try:
        job: Job | None = group.call_on_main(lambda: make_job(composition, argv))
    except RankError:
        return 1  # rank 0 says why
    if job is None:
        return 0
    execution = Execution(job, place)
    outcome = execution.carry_out()
    if execution.failure is not None:
        _leave_at_once(outcome.exit_code)
    return outcome.exit_code


def _check_place(
    composition: Composition, argv: Sequence[str], place: Place, multirun: bool
) -> None:
    name = _LAUNCHERS[place.launcher]
    driver = composition.config["driver"]
    option = composition.choices.get("driver", driver["framework"])
    problems = []
    if multirun:
        message = f"needs fresh ranks for each job, but {name} starts them once"
        hint = f"python -m expkit -m driver={option} ..."
        problems.append(Problem("--multirun", message, hint))
    if not is_distributed(composition.config):
        message = (
            f"driver={option} runs in one process, but {name} has started this one as rank "
            f"{place.rank} of {place.world_size}"
        )
        several = SEVERAL.get(driver["framework"], SEVERAL["torch"])
        problems.append(Problem("driver", message, f"driver={several}"))
    else:
        # What a run that goes on was once given is not refused, only what is given now.
        given = {key_of(text) for text in argv}
        # The launcher's own number of ranks says nothing new; all else is for it to set.
        theirs = {"num_processes": place.local_world_size}
        for key in ("num_processes", "max_restarts", "worker_output"):
            if f"driver.{key}" in given and driver[key] != theirs.get(key):
                message = f"has no effect under {name}, which starts the ranks"
                problems.append(Problem(f"driver.{key}", message))
    if problems:
        raise ConfigError(problems)


def main() -> None:
    """Be one rank of a supervised run."""
    control = Control.open()
    open_streams()
    job = Job.from_json(control.read_job())
    here = str(Path.cwd())
    if here not in sys.path[:1]:  # the user's own modules
        sys.path.insert(0, here)
    place = find_place()
    execution = Execution(job, place, follow=control.follow)
    outcome = execution.carry_out()
    failure = execution.failure
    if failure is not None:
        control.error(
            in_a_line(failure),
            "\n".join(details(failure)),
            is_consequence=isinstance(failure, RankError),
            exit_code=outcome.exit_code,
        )
        _leave_at_once(outcome.exit_code)
    elif place is None or place.rank == 0:
        control.outcome({**asdict(outcome), "directory": str(outcome.directory)})
    else:
        control.done()
    for number in STOP_SIGNALS:  # all is said and written
        signal.signal(number, signal.SIG_IGN)
    sys.exit(outcome.exit_code)


def _leave_at_once(exit_code: int) -> NoReturn:
    """End without taking leave of the other ranks, which after an error might not answer."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
