"""Dynamic loss scaling: so that small fp16 gradients do not vanish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expkit.core.errors import ConfigError, Problem


class LossScale:
    """The factor of the loss: halved at an overflow, doubled after ``growth_every`` good steps.

    After Micikevicius et al., "Mixed Precision Training" (2018). One decision holds for all
    optimizers of a step.

    Args:
        initial: the first scale.
        growth_every: good steps before the scale is doubled.

    Attributes:
        value: the present scale.
    """

    def __init__(self, initial: float = 65536.0, growth_every: int = 2000) -> None:
        problems = []
        if not initial > 0:
            problems.append(
                Problem("driver.loss_scale", f"is {initial}; it must be greater than 0")
            )
        if growth_every < 1:
            message = f"is {growth_every}; it must be 1 or more"
            problems.append(Problem("driver.loss_scale_growth_every", message))
        if problems:
            raise ConfigError(problems)
        self.value = float(initial)
        self._growth_every = growth_every
        self._good_steps = 0

    def update(self, finite: bool) -> None:
        """Adapt the scale after a step whose gradients were finite or not."""
        if not finite:
            self.value *= 0.5
            self._good_steps = 0
            return
        self._good_steps += 1
        if self._good_steps == self._growth_every:
            self.value *= 2.0
            self._good_steps = 0

    def state(self) -> dict[str, Any]:
        """As JSON values."""
        return {"value": self.value, "good_steps": self._good_steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self.value = float(state["value"])
        self._good_steps = int(state["good_steps"])
