"""The share of right labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.metric import HostArrays
from expkit.metrics.labels import LabelReader
from expkit.metrics.mean import MeanMetric, kept_sums


class Accuracy(MeanMetric):
    """Right labels over all labels, counted over samples, or over tokens; NaN over no samples.

    NaN too where a score of a position that counts is NaN: nobody knows what is predicted there.

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
        labels = self._labels.compare(outputs, fields)
        true = labels.true if labels.kept is None else labels.true[labels.kept]
        self._labels.check(true, labels.num_classes)
        right: NDArray[Any] = labels.predicted == labels.true
        if labels.unknown is not None:
            right = np.where(labels.unknown, np.nan, right)
        return kept_sums(right, labels.kept)

    def result(self, mean: float) -> float:
        """The share itself."""
        return mean
