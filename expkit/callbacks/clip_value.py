"""Clips each entry of the gradients."""

from __future__ import annotations

import math
from typing import final

from expkit.callbacks.refusal import refuse
from expkit.core.events import Callback, Context


@final
class ClipGradientValue(Callback):
    """Clips each entry of the gradients to [-max_value, max_value].

    It comes before ``trainer.clip_norm``, which then sees the clipped gradients.

    Args:
        max_value: greatest absolute value of an entry.
    """

    def __init__(self, max_value: float) -> None:
        if not 0.0 < max_value < math.inf:
            refuse("clip_value", "max_value", max_value, "finite numbers greater than 0", 1.0)
        self._max_value = max_value

    def step_start(self, context: Context) -> None:
        """Clip."""
        context.driver.clip_gradients(max_value=self._max_value)
