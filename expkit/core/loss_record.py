"""The training loss, read from the device only when somebody wants to know it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expkit.core.driver import Driver
from expkit.core.errors import NonFiniteLossError
from expkit.core.loss_term import LossTerm

Sums = NDArray[np.float64]

_MOST_HELD = 1000
"""Steps whose losses may wait on the device where nobody asks for them."""


class LossRecord:
    """Holds the losses since the last reading, on the device, and sums them up exactly.

    Nothing is computed in a step. A reading brings all losses to the host in one transfer, so that
    a loss that became NaN between two readings is still traced to its own step.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._terms: list[LossTerm] = []
        self._steps: list[int] = []
        self._starts: list[int] = []  # where the terms of each step begin
        self._epoch = np.zeros(2)
        self._interval = np.zeros(2)

    def add(self, terms: list[LossTerm], step: int) -> None:
        """Keep the losses of step number ``step`` (1-based)."""
        self._starts.append(len(self._terms))
        self._steps.append(step)
        self._terms += terms
        if len(self._steps) >= _MOST_HELD:
            self.read()

    def read(self) -> None:
        """Bring what is held to the host.

        Raises:
            NonFiniteLossError: a loss is NaN or infinite; names the first such step.
        """
        if not self._terms:
            return
        # A row for each step: ranks may have cut it into different numbers of micro-batches.
        rows = np.add.reduceat(self._driver.read_losses(self._terms), self._starts)
        sums = self._driver.all_reduce(rows)
        steps, self._terms, self._steps, self._starts = self._steps, [], [], []
        is_bad = ~np.isfinite(sums).all(axis=1)
        if is_bad.any():
            first = int(is_bad.argmax())
            raise NonFiniteLossError(
                f"the training loss became {sums[first, 0]} at step {steps[first]}; "
                "lower optimizer.lr, set trainer.clip_norm=1.0, look whether the data holds NaN or "
                "infinite values, or leave such steps out with "
                "callbacks=[progress,nan_guard] callbacks.nan_guard.policy=skip"
            )
        self._interval = _added(self._interval, sums)
        self._epoch = _added(self._epoch, sums)

    def interval_mean(self) -> float | None:
        """Weighted mean loss since the last call, over all ranks; None where there was none."""
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


def _added(total: Sums, rows: Sums) -> Sums:
    """The total plus the rows one by one: when they were read does not show in the last bit."""
    added: Sums = np.add.accumulate(np.vstack((total, rows)))[-1]
    return added
