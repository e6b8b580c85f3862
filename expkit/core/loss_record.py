"""The training loss, read from the device only when somebody wants to know it."""

from __future__ import annotations

import numpy as np

from expkit.core.driver import Driver, LossTerm
from expkit.core.errors import NonFiniteLossError


class LossRecord:
    """Holds the losses of the steps since the last reading, on the device, and sums them up exactly.

    Nothing is computed in a step. A reading brings all losses to the host in one transfer, so that
    a loss that became NaN between two readings is still traced to its own step.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._terms: list[LossTerm] = []
        self._steps: list[int] = []
        self._epoch = np.zeros(2)
        self._interval = np.zeros(2)

    def add(self, terms: list[LossTerm], step: int) -> None:
        """Keep the losses of step number ``step`` (1-based)."""
        self._terms += terms
        self._steps += [step] * len(terms)

    def read(self) -> None:
        """Bring what is held to the host.

        Raises:
            NonFiniteLossError: a loss is NaN or infinite; names the first such step.
        """
        if not self._terms:
            return
        sums = self._driver.read_losses(self._terms)
        steps, self._terms, self._steps = self._steps, [], []
        total = self._driver.all_reduce(sums.sum(axis=0))
        if not np.isfinite(total).all():
            bad = ~np.isfinite(sums).all(axis=1)
            step = steps[int(bad.argmax())] if bad.any() else steps[0]
            value = sums[int(bad.argmax()), 0] if bad.any() else total[0]
            raise NonFiniteLossError(
                f"the training loss became {value} at step {step}; lower optimizer.lr, set trainer.clip_norm=1.0, or "
                "leave such steps out with callbacks=[progress,nan_guard] callbacks.nan_guard.policy=skip"
            )
        self._interval += total
        self._epoch += total

    def interval_mean(self) -> float | None:
        """Weighted mean loss of the steps since the last call, over all ranks; None where there were none."""
        self.read()
        total, weight = self._interval
        self._interval = np.zeros(2)
        return float(total / weight) if weight else None

    def epoch_mean(self) -> float | None:
        """Weighted mean loss of the epoch so far; starts the next epoch's."""
        self.read()
        total, weight = self._epoch
        self._epoch = np.zeros(2)
        return float(total / weight) if weight else None

    def state(self) -> list[float]:
        """The sums of the epoch and the interval under way."""
        self.read()
        return [*self._epoch.tolist(), *self._interval.tolist()]

    def load_state(self, state: list[float]) -> None:
        """Take back what ``state`` gave."""
        self._epoch, self._interval = np.array(state[:2]), np.array(state[2:])
