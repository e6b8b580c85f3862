"""The weighted mean, which most metrics are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.metric import HostArrays, Metric


class MeanMetric(Metric):
    """Base of metrics that are a function of sum(weight * value) / sum(weight * count).

    A subclass says what each sample adds (``terms``) and what becomes of the mean (``result``). NaN
    over no samples.
    """

    def __init__(self) -> None:
        self.reset()

    @abstractmethod
    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The sum of each sample's values, shape (N,), and their count: (N,), or one for all."""

    @abstractmethod
    def result(self, mean: float) -> float:
        """The metric, given the mean."""

    def reset(self) -> None:
        """Empty sums."""
        self.state = {"sums": np.zeros(2)}

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Add a batch; what has weight 0 is not looked at, even where it is NaN."""
        sums, counts = self.terms(outputs, fields)
        if weights is None:
            count = (
                counts * len(sums)
                if isinstance(counts, float | int)
                else counts.sum(dtype=np.float64)
            )
            self.state["sums"] += (sums.sum(dtype=np.float64), count)
            return
        used = weights != 0  # chosen, not multiplied: 0 times the NaN of padding is NaN
        factors = weights[used].astype(np.float64)
        self.state["sums"] += (
            factors @ sums[used],
            factors @ np.broadcast_to(counts, sums.shape)[used],
        )

    def compute(self) -> dict[str, float]:
        """The metric under its own name."""
        total, count = self.state["sums"].tolist()
        return {"": self.result(total / count) if count else float("nan")}


def sample_sums(values: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """The sum of each sample's values in float64, and how many values a sample has."""
    if values.ndim == 1:
        return values, 1.0
    size = float(np.prod(values.shape[1:], dtype=np.int64))
    return values.sum(axis=tuple(range(1, values.ndim)), dtype=np.float64), size


def kept_sums(
    values: NDArray[Any], kept: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[Any] | float]:
    """As `sample_sums`, over the values that a mask keeps; None = all."""
    if kept is None:
        return sample_sums(values)
    # Not a product: what is left out may be NaN.
    return sample_sums(np.where(kept, values, 0))[0], sample_sums(kept)[0]
