"""What a callback sees of a run, and what it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from expkit.core.collective import Flags
from expkit.core.driver import Driver
from expkit.core.monitor import Monitor
from expkit.core.progress import Progress


class Context:
    """What a callback sees of the run, and all that it may ask for.

    Attributes:
        progress: where the run stands.
        metrics: the latest metrics of training by name, such as ``loss``.
        eval_metrics: the metrics of the last evaluation.
        driver: the driver, for its verbs (weights, collectives).
        run_dir: where the run writes, or None when nothing is written.
        monitor: the metric that decides what is best; None where nothing is monitored.
        log_due: True from ``step_end`` on in a step whose training record is written.
        stop_reason: why the run shall end; None while it goes on.
    """

    def __init__(
        self,
        progress: Progress,
        driver: Driver,
        run_dir: Path | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        self.progress = progress
        self.driver = driver
        self.run_dir = run_dir
        self.monitor = monitor
        self.log_due = False
        self.metrics: dict[str, float] = {}
        self.eval_metrics: dict[str, float] = {}
        self.logged: dict[str, float] = {}
        self.stop_reason: str | None = None
        self.save_requested = False
        self.eval_requested = False
        self.skip_requested = False

    def log(self, values: Mapping[str, float]) -> None:
        """Add numbers to the next training record."""
        self.logged.update(values)

    def request_stop(self, reason: str) -> None:
        """Ask for the end of the run after this step. Any rank may ask; all leave together.

        With several ranks what is asked for travels with the gradients: asked after them, in
        ``step_end``, it takes effect one step later. The same holds for the other requests.
        """
        self.stop_reason = reason

    def request_save(self) -> None:
        """Ask for a checkpoint after this step."""
        self.save_requested = True

    def request_eval(self) -> None:
        """Ask for an evaluation after this step."""
        self.eval_requested = True

    def flags(self) -> Flags:
        """What was asked for on this rank: to stop, to save, to evaluate."""
        return (self.stop_reason is not None, self.save_requested, self.eval_requested)

    def skip_step(self) -> None:
        """Ask before the update, on all ranks alike, that this window's gradients are dropped."""
        self.skip_requested = True
