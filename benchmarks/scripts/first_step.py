"""The mark as a callback of expkit."""

from __future__ import annotations

from benchmarks.scripts.mark import mark
from expkit.core.events import Callback, Context


class FirstStep(Callback):
    """Marks the end of the first optimizer step."""

    def step_end(self, context: Context) -> None:  # noqa: ARG002 - a handler takes what comes
        """See `mark`."""
        mark()
