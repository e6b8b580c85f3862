"""What a run came to, and how it is told."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expkit.command_line import override
from expkit.core.errors import WorkerError
from expkit.core.result import Result
from expkit.run.directory import RunDirectory

_MOST_METRICS = 6
_EXPKIT = Path(__file__).parent
_STANDARD_LIBRARY = Path(traceback.__file__).parent


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    Attributes:
        status: ``completed``, ``interrupted`` or ``failed``.
        exit_code: of a command that is this run alone.
        objective: the monitored metric of the best evaluation; None without.
        directory: the run directory.
        seconds: how long it took, building included.
        error: type and message of what ended it; None where nothing did.
    """

    status: str
    exit_code: int
    objective: float | None
    directory: Path
    seconds: float
    error: str | None = None


def summary(run: RunDirectory, task: str, result: Result) -> Iterator[str]:
    """The last lines of a run: what it came to, how long it took, where to look."""
    if result.reason:
        yield f"stopped  {result.reason}"
    if task == "train" and result.objective is not None and result.monitor:
        name = result.monitor.removeprefix("-")
        place = f"step {result.best_step}, epoch {(result.best_epoch or 0) + 1}"
        yield f"best     {name} {result.objective:.4g} at {place}"
    elif result.metrics:
        numbers = [f"{name} {value:.4g}" for name, value in result.metrics.items()]
        more = len(numbers) - _MOST_METRICS
        tail = f" and {more} more" if more > 0 else ""
        yield "eval     " + " ".join(numbers[:_MOST_METRICS]) + tail
    for name, count in result.predictions.items():
        yield f"predict  {counted(count, 'sample')} in {name}"
    if task == "train":
        yield f"time     {result.seconds:.1f} s, {counted(result.steps, 'step')}"
    place = shlex.quote(shown(run.path))
    yield f"saved    {place}"
    if run.tensorboard.is_dir():
        yield f"curves   tensorboard --logdir {place}"


def counted(number: int, thing: str) -> str:
    """A number and what it counts, in words: ``1 step``, ``2 steps``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def shown(path: Path) -> str:
    """A path as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def nothing_left(path: Path, info: Mapping[str, Any]) -> str:
    """Say that a run has done all that it was to do."""
    result = info.get("result") or {}
    epochs, steps = result.get("epochs", 0), result.get("steps", 0)
    done = f"{counted(epochs, 'epoch')}, {counted(steps, 'step')}"
    return (
        f"{shown(path)} has completed ({done}): nothing is left to do; "
        "ask for more by trainer.n_epochs=..."
    )


def end_is_lost(path: Path, info: Mapping[str, Any], step: int) -> str:
    """Say that a run has completed, but goes on from its last checkpoint all the same.

    Args:
        path: the run directory.
        info: what ``run.json`` says.
        step: of the last checkpoint.
    """
    return (
        f"{shown(path)} has completed ({counted(info['result']['steps'], 'step')}), but its end is "
        f"in no checkpoint, the last of which is of step {step}: it goes on"
    )


def arose_elsewhere(error: BaseException) -> bool:
    """Whether an error arose in other code than expkit's, so that its traceback tells something.

    Errors of the standard library count as those of whoever called it.
    """
    if isinstance(error, WorkerError):
        files: Sequence[str] = error.files
    else:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for file in map(Path, reversed(files)):
        if file.is_relative_to(_EXPKIT):
            return False
        is_installed = bool({"site-packages", "dist-packages"} & set(file.parts))
        if is_installed or not (
            file.is_relative_to(_STANDARD_LIBRARY) or file.name.startswith("<")
        ):
            return True
    return False


def resume_command(path: Path, argv: Sequence[str]) -> str:
    """What goes on with a run, to be pasted into a shell.

    Args:
        path: the run directory.
        argv: the command line of the run; its config directory is needed again.
    """
    words = ["python", "-m", "expkit", override("resume", shown(path))]
    for place, text in enumerate(argv):
        if text in ("--config-dir", "-cd"):
            words += argv[place : place + 2]
        elif text.startswith("--config-dir="):
            words.append(text)
    return shlex.join(words)
