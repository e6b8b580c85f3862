"""Runs a function of the user's own whenever the run has a new best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, final

from expkit.callbacks.refusal import refuse
from expkit.callbacks.watch import MonitorWatch
from expkit.core.events import Callback, Context


@final
class RunOnBest(Callback):
    """Calls ``function(context, metrics)`` after each evaluation that is the best so far.

    Args:
        function: gets the context and the metrics of that evaluation.
        monitor: ``accuracy`` (larger is better) or ``-loss`` (smaller is better); None = the
            run's own monitor.
        run_on: ``main`` (rank 0 only) or ``all`` ranks, for functions in which ranks communicate.
    """

    def __init__(
        self,
        function: Callable[[Context, Mapping[str, float]], object],
        monitor: str | None = None,
        run_on: Literal["all", "main"] = "main",
    ) -> None:
        if not callable(function):
            refuse(
                "on_best",
                "function",
                function,
                "a function of (context, metrics); in a config a node with _target_ and _partial_",
                "{_target_: my_module.my_function, _partial_: true}",
            )
        if run_on not in ("all", "main"):
            refuse("on_best", "run_on", run_on, "all, main", "main")
        self.run_on = run_on
        self._function = function
        self._watch = MonitorWatch(monitor, "on_best")

    def fit_start(self, context: Context) -> None:
        """Take the run's monitor."""
        self._watch.start(context)

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """Call the function where this evaluation is the best."""
        if context.progress.step > 0 and self._watch.improved(metrics):
            self._function(context, metrics)

    def state(self) -> dict[str, Any]:
        """The best value so far."""
        return self._watch.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self._watch.load_state(state)
