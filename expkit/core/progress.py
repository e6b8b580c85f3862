"""Where a run stands: counted by what was trained, never by what was read ahead."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """The position of a run, and how far it is to go.

    Attributes:
        epoch: epochs completed; also the 0-based number of the epoch under way.
        step: optimizer steps made in the whole run.
        epoch_step: steps made in the epoch under way.
        samples: samples trained in the whole run, over all ranks.
        skipped_steps: updates left out (overflow under loss scaling, or a NaN guard).
        n_epochs: epochs the run is to have, or None.
        total_steps: steps the run is to have as far as they can be known, or None.
        steps_per_epoch: None for data without length.
        ends_epoch: whether the last window of an epoch without length has been trained.
        seconds_before: training time of earlier parts of a resumed run, in seconds.
    """

    epoch: int = 0
    step: int = 0
    epoch_step: int = 0
    samples: float = 0.0
    skipped_steps: int = 0
    n_epochs: int | None = None
    total_steps: int | None = None
    steps_per_epoch: int | None = None
    seconds_before: float = 0.0
    ends_epoch: bool = False
    _started: float = field(default_factory=time.monotonic, repr=False)

    @property
    def epoch_ended(self) -> bool:
        """Whether the epoch under way has had its last step."""
        return self.ends_epoch or self.epoch_step == self.steps_per_epoch

    @property
    def latest_epoch(self) -> int:
        """The 0-based number of the epoch that the last step was in; 0 before the first."""
        is_between = self.epoch_step == 0 and self.step > 0 and self.epoch > 0
        return self.epoch - 1 if is_between else self.epoch

    @property
    def seconds(self) -> float:
        """Training time so far, on a clock that never goes back."""
        return self.seconds_before + time.monotonic() - self._started

    @property
    def place(self) -> str:
        """The epoch, counted from 1, and the place in it, for people."""
        ended = self.step > 0 and (self.epoch_step == 0 or self.epoch_ended)
        epoch = self.epoch if self.epoch_step == 0 and ended else self.epoch + 1
        within = (
            "done"
            if ended
            else f"at {self.epoch_step} of {self.steps_per_epoch or 'unknown'} steps"
        )
        return f"epoch {epoch} {within}"

    def __str__(self) -> str:
        """Step and epoch, for people."""
        return f"step {self.step}, {self.place}"

    def begin_epoch(self) -> None:
        """Leave an epoch that has ended for the next one."""
        self.epoch += 1
        self.epoch_step = 0
        self.ends_epoch = False

    def start_clock(self) -> None:
        """Count seconds from now on."""
        self._started = time.monotonic()

    def state(self) -> dict[str, Any]:
        """The position, as JSON values."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "epoch_step": self.epoch_step,
            "samples": self.samples,
            "skipped_steps": self.skipped_steps,
            "seconds": self.seconds,
            "ends_epoch": self.ends_epoch,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the position back; limits stay those of the present config.

        Raises:
            ValueError: it is no position.
        """
        state = {"ends_epoch": False, **state}  # older checkpoints know only data with a length
        if min(state[name] for name in self.state()) < 0 or state["epoch_step"] > state["step"]:
            raise ValueError(f"no run stands at {state}")
        self.epoch = int(state["epoch"])
        self.step = int(state["step"])
        self.epoch_step = int(state["epoch_step"])
        self.samples = float(state["samples"])
        self.skipped_steps = int(state["skipped_steps"])
        self.seconds_before = float(state["seconds"])
        self.ends_epoch = bool(state["ends_epoch"])
        self.start_clock()
