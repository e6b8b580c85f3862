"""Records the learning rates."""

from __future__ import annotations

from typing import final

from expkit.core.events import Callback, Context


@final
class LearningRateMonitor(Callback):
    """Adds the rates of the last update to each training record.

    The name is ``lr``, or ``lr/<optimizer>/<group>`` where there are several.
    """

    run_on = "main"

    def step_end(self, context: Context) -> None:
        """Tell the rates where a record is due."""
        if context.log_due:
            context.log(context.driver.learning_rates())
