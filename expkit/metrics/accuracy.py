"""The share of right labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from expkit.core.metric import HostArrays
from expkit.metrics.labels import LabelReader
from expkit.metrics.mean import MeanMetric, sample_sums


class Accuracy(MeanMetric):
    """Right labels over all labels, counted over samples, or over tokens; NaN over no samples.

    Args:
        output: model output with scores (classes last), labels (integers), or the logit of class 1.
        target: field with the true labels.
        ignore_index: label of positions that do not count, such as padding; None = all count.
    """

    def __init__(
        self, output: str = "output", target: str = "y", ignore_index: int | None = None
    ) -> None:
        super().__init__()
        self.needs = (output,)
        self._labels = LabelReader("Accuracy", output, target, ignore_index)

    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """How many labels of each sample are right, and how many it has."""
        predicted, target, kept = self._labels.compare(outputs, fields)
        right = predicted == target
        if kept is None:
            return sample_sums(right)
        return sample_sums(right & kept)[0], sample_sums(kept)[0]

    def result(self, mean: float) -> float:
        """The share itself."""
        return mean
