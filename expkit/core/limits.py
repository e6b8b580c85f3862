"""When a run has done what it was asked for."""

from __future__ import annotations

from typing import Literal

from expkit.core.errors import ConfigError, Problem
from expkit.core.progress import Progress

DEFAULT_EPOCHS = 20


class Limits:
    """Epochs, steps and time; whichever comes first ends the run.

    Args:
        n_epochs: epochs to train; None = no limit; ``auto`` = 20 where there is no other limit.
        max_steps: optimizer steps to make; None = no limit.
        max_time: training time in seconds; None = no limit.

    Raises:
        ConfigError: no limit at all, or one below 0.
    """

    def __init__(
        self,
        n_epochs: int | Literal["auto"] | None,
        max_steps: int | None,
        max_time: float | None,
    ) -> None:
        self.is_default = n_epochs == "auto" and max_steps is None and max_time is None
        if n_epochs == "auto":
            n_epochs = DEFAULT_EPOCHS if self.is_default else None
        problems = [
            Problem(
                f"trainer.{key}", f"is {value!r}; allowed: {what}, 0 or more, or null for no limit"
            )
            for key, what, value in (
                ("n_epochs", "a whole number", n_epochs),
                ("max_steps", "a whole number", max_steps),
                ("max_time", "seconds", max_time),
            )
            if value is not None and not _is_amount(value, whole=key != "max_time")
        ]
        if n_epochs is None and max_steps is None and max_time is None:
            message = "n_epochs, max_steps and max_time are all null: it would never end"
            problems.append(Problem("trainer", message, "trainer.max_steps=1000"))
        if problems:
            raise ConfigError(problems)
        self.n_epochs = n_epochs
        self.max_steps = max_steps
        self.max_time = max_time

    def __str__(self) -> str:
        limits = {"n_epochs": self.n_epochs, "max_steps": self.max_steps, "max_time": self.max_time}
        return ", ".join(f"{key}={value}" for key, value in limits.items() if value is not None)

    def check_length(self, steps_per_epoch: int | None) -> None:
        """Make sure that somebody has said where training on data without a length ends.

        Raises:
            ConfigError: nobody has.
        """
        if steps_per_epoch is None and self.is_default:
            message = "is auto, which sets no end to data without a length; allowed: a number"
            raise ConfigError([Problem("trainer.n_epochs", message, "trainer.max_steps=1000")])

    def reached(self, progress: Progress) -> bool:
        """Whether the epochs or steps are done: the same on all ranks by itself."""
        if self.n_epochs is not None and progress.epoch >= self.n_epochs:
            return True
        return self.max_steps is not None and progress.step >= self.max_steps

    def is_over_time(self, progress: Progress) -> bool:
        """Whether the time is up by this rank's clock."""
        return self.max_time is not None and progress.seconds >= self.max_time

    def total_steps(self, progress: Progress) -> int | None:
        """Steps of the whole run as far as they can be known.

        Epochs that are over count with the steps that they had, which may have been others.
        """
        limits = [] if self.max_steps is None else [self.max_steps]
        if self.n_epochs is not None and progress.steps_per_epoch is not None:
            before = progress.step - progress.epoch_step
            limits.append(before + (self.n_epochs - progress.epoch) * progress.steps_per_epoch)
        return min(limits) if limits else None


def _is_amount(value: object, whole: bool) -> bool:
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    return is_number and value >= 0  # type: ignore[operator]
