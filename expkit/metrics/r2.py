"""The coefficient of determination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import Collective
from expkit.core.metric import HostArrays
from expkit.metrics.gathered import GatheredMetric
from expkit.metrics.regression import read_numbers

Moments = dict[str, NDArray[Any]]


class R2(GatheredMetric):
    """1 - sum((y - output) ** 2) / sum((y - mean(y)) ** 2); the mean of that over several outputs.

    NaN for fewer than two samples, and where an output or a target is NaN; for targets that are all
    equal 1 where the output is exact, else 0. Variances are merged by the pairwise formula of Chan,
    Golub and LeVeque (1983): a sum of squares less a squared sum would lose all digits where the
    mean is far greater than the spread.

    Args:
        output: model output with the predictions.
        target: field with the true values.
    """

    def __init__(self, output: str = "output", target: str = "y") -> None:
        self.needs = (output,)
        self._output = output
        self._target = target
        self.reset()

    def reset(self) -> None:
        """No samples."""
        self.state = {
            "samples": np.zeros(1, dtype=np.int64),
            "weight": np.zeros(1),
            "mean": np.zeros(1),
            "spread": np.zeros(1),
            "residual": np.zeros(1),
        }

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Add a batch; what has weight 0 is not looked at."""
        predictions, targets = read_numbers("R2", outputs, self._output, fields, self._target)
        counts = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
        used = counts != 0
        self.state = _combine(self.state, _moments(predictions[used], targets[used], counts[used]))

    def reduce(self, group: Collective) -> None:
        """Combine the moments of all ranks."""
        self.merge(group.all_gather(self.state))

    def merge(self, states: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Take the place of several sets of moments."""
        self.reset()
        for state in states:
            self.state = _combine(self.state, dict(state))

    def compute(self) -> dict[str, float]:
        """R2 under the metric's own name."""
        if self.state["samples"][0] < 2:
            return {"": float("nan")}
        spread, residual = self.state["spread"], self.state["residual"]
        varies = spread != 0  # NaN does
        scores = np.where(residual == 0, 1.0, 0.0)
        scores[varies] = 1 - residual[varies] / spread[varies]
        # A NaN output of targets that are all equal leaves their spread 0.
        return {"": float(np.where(np.isnan(residual), np.nan, scores).mean())}


def _moments(
    predictions: NDArray[np.float64], targets: NDArray[np.float64], counts: NDArray[np.float64]
) -> Moments:
    """Weight, mean, spread about the mean and residual of a batch, for each output."""
    if not len(targets):
        return {"samples": np.zeros(1, dtype=np.int64)}
    columns = targets.reshape(len(targets), -1)
    weight = counts.sum(keepdims=True)
    # Relative to the first sample, so that equal targets have a spread of exactly 0.
    origin = columns[:1]
    offsets = columns - origin
    mean = counts @ offsets / weight
    return {
        "samples": np.array([len(targets)]),
        "weight": weight,
        "mean": mean + origin[0],
        "spread": counts @ np.square(offsets - mean),
        "residual": counts @ np.square(columns - predictions.reshape(columns.shape)),
    }


def _combine(left: Moments, right: Moments) -> Moments:
    """The moments of two disjoint sets of samples together."""
    if not right["samples"][0]:
        return left
    if not left["samples"][0]:
        return right
    weight = left["weight"] + right["weight"]
    distance = right["mean"] - left["mean"]
    share = right["weight"] / weight
    return {
        "samples": left["samples"] + right["samples"],
        "weight": weight,
        "mean": left["mean"] + distance * share,
        "spread": left["spread"] + right["spread"] + np.square(distance) * left["weight"] * share,
        "residual": left["residual"] + right["residual"],
    }
