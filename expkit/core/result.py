"""What a run comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["completed", "interrupted", "failed"]


@dataclass
class Result:
    """The outcome of a training, equal on all ranks but for their clocks.

    Attributes:
        status: ``completed`` (early stop included), ``interrupted`` (a stop signal) or ``failed``
            (an ignored error).
        reason: why it ended before its limits; None where it did not.
        seconds: training time by this rank's clock, in seconds.
        epochs: epochs completed.
        steps: optimizer steps made.
        skipped_steps: of these, updates left out.
        metrics: the last evaluation.
        monitor: name of the metric that decides what is best; None without.
        best_eval: the metrics of the best evaluation; empty without one.
        best_epoch: the 0-based epoch of the best evaluation.
        best_step: the step of the best evaluation.
        predictions: of a prediction, how many samples are in each file, by its name.
    """

    status: Status = "completed"
    reason: str | None = None
    seconds: float = 0.0
    epochs: int = 0
    steps: int = 0
    skipped_steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    monitor: str | None = None
    best_eval: dict[str, float] = field(default_factory=dict)
    best_epoch: int | None = None
    best_step: int | None = None
    predictions: dict[str, int] = field(default_factory=dict)

    @property
    def objective(self) -> float | None:
        """The monitored metric of the best evaluation: what a sweep compares."""
        return self.best_eval.get(self.monitor.removeprefix("-")) if self.monitor else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
