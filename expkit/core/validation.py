"""Evaluation within a training, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from expkit.core.best import Best
from expkit.core.evaluator import Evaluator
from expkit.core.events import Context, EventBus
from expkit.core.logger import Logger
from expkit.core.period import Period
from expkit.core.schedule import ScheduleSet


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of a run.

    Attributes:
        step: optimizer steps made before it; -1 = there was none.
        metrics: what it gave.
        score: the monitored value, oriented so that larger is better; None where it has none or
            does not count.
    """

    step: int = -1
    metrics: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None


class Validation:
    """Evaluates a model while it is trained: records it, finds the best, tells the schedules.

    Args:
        evaluator: computes the metrics.
        context: what the callbacks see; its monitor says what is best.
        events: told before and after.
        logger: where the metrics are recorded.
        schedules: those that follow the monitored metric are told its value.
        every: when an evaluation is due.

    Attributes:
        best: the best evaluation.
        last: the last one.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        context: Context,
        events: EventBus,
        logger: Logger,
        schedules: ScheduleSet,
        every: Period,
    ) -> None:
        self._evaluator = evaluator
        self._context = context
        self._events = events
        self._logger = logger
        self._schedules = schedules
        self._every = every
        self.best = Best(context.monitor)
        self.last = Evaluation()

    def is_due(self) -> bool:
        """Whether an evaluation is due after this step."""
        return self._every.due(self._context.progress)

    def is_due_at_the_end(self) -> bool:
        """Whether the trained model has not been evaluated; one before training is none of it."""
        is_evaluated = self.last.step >= min(self._context.progress.step, 1)
        return not (is_evaluated or self._every.is_never)

    def run(self, counts: bool = True) -> None:
        """Evaluate, and see whether it is the best; one that does not count is only recorded."""
        context, progress = self._context, self._context.progress
        context.eval_requested = False
        if not self._evaluator.has_data:
            return
        self._events.fire("eval_start", context)
        metrics = self._evaluator.run()
        self._logger.log("eval", progress.step, progress.latest_epoch, metrics)
        if counts:
            context.eval_metrics = metrics
            if self.best.see(metrics, progress.latest_epoch, progress.step):
                context.save_requested = True
            if self.best.latest is not None and context.monitor is not None:
                value = metrics[context.monitor.name]
                self._schedules.observe(value, context.monitor.larger_is_better)
        else:
            self.best.check(metrics)
        self.last = Evaluation(progress.step, metrics, self.best.latest)
        self._events.fire("eval_end", context, metrics)

    def state(self) -> dict[str, Any]:
        """The best and the last evaluation, as JSON values."""
        return {
            "best": self.best.state(),
            "evaluated_step": self.last.step,
            "metrics": self.last.metrics,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave.

        Raises:
            ConfigError: that best was judged by another metric.
        """
        self.best.load_state(state["best"])
        self.last = Evaluation(state["evaluated_step"], dict(state["metrics"]))
        self._context.eval_metrics = dict(state["metrics"])
