"""The errors a user meets: what is wrong, what is allowed, and the override that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ExpkitError(Exception):
    """Base of all errors that expkit raises on purpose.

    Attributes:
        exit_code: what the process returns when this error ends a run.
    """

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a config.

    Attributes:
        key: the config key in dotted form, such as ``trainer.n_epochs``.
        message: what is wrong and what is allowed, in one line.
        hint: an override that mends it, such as ``trainer.n_epochs=5``; empty where none is known.
    """

    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """One line for the terminal."""
        tail = f"  (try: {self.hint})" if self.hint else ""
        return f"{self.key}: {self.message}{tail}"


class ConfigError(ExpkitError):
    """A config that cannot be run; holds every problem that was found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem("config", problems)]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class DataError(ExpkitError):
    """Data that cannot be trained on or evaluated: empty, of a wrong type, out of range."""


class PredictionError(ExpkitError):
    """Predictions that cannot be made of a model's outputs, or cannot be written."""


class WorkerError(Exception):
    """What was raised in a worker process, as its traceback tells it: the cause of an error here.

    Attributes:
        files: of the frames, the innermost last.
    """

    def __init__(self, text: str, files: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.files = tuple(files)


class DriverError(ExpkitError):
    """Something the chosen driver or device cannot do."""


class CheckpointError(ExpkitError):
    """A checkpoint that cannot be written, or that is absent or damaged."""


class NoCheckpointError(CheckpointError):
    """There is no checkpoint of the kind that was asked for, neither whole nor damaged."""


class MismatchError(CheckpointError):
    """A checkpoint that is whole, but of another model, data set, optimizer or framework."""

    exit_code = 2


class RunDirectoryError(ExpkitError):
    """A run directory that cannot be made, written or used."""

    exit_code = 2


class RankError(ExpkitError):
    """Another rank failed, is gone, or did not come in time; what happened there is its to tell."""


class NonFiniteLossError(ExpkitError):
    """The loss or a weight became NaN or infinite."""


class CallbackError(ExpkitError):
    """A callback raised; carries its name, the cause is chained."""


class StepError(ExpkitError):
    """An error inside a training or evaluation step; names the data-set indices of the batch."""
