"""The confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.metric import HostArrays, Metric
from expkit.metrics.labels import LabelReader, check_num_classes, largest_label


class ConfusionMatrix(Metric):
    """How often each label was taken for each other; reported as ``name/true/predicted``.

    A sample with a NaN among its scores was taken for nobody knows what: the row of its true label
    is NaN.

    Args:
        output: model output, see `expkit.metrics.labels.LabelReader`.
        target: field with the true labels.
        ignore_index: label of positions that do not count; None = all count.
        num_classes: size of the matrix; None = it grows with the labels that occur.
    """

    def __init__(
        self,
        output: str = "output",
        target: str = "y",
        ignore_index: int | None = None,
        num_classes: int | None = None,
    ) -> None:
        check_num_classes("ConfusionMatrix", num_classes)
        self.needs = (output,)
        self._labels = LabelReader("ConfusionMatrix", output, target, ignore_index)
        self._num_classes = num_classes
        self.reset()

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Counts (or sums of weights): row = true label, column = predicted label."""
        counts = self.state["counts"]
        # A row may have grown, or been padded to that of another rank, after it became NaN.
        unknown = np.isnan(counts).any(axis=1, keepdims=True)
        return np.where(unknown, np.nan, counts)

    def reset(self) -> None:
        """An empty matrix."""
        size = self._num_classes or 0
        self.state = {"counts": np.zeros((size, size))}

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Count the pairs of a batch."""
        true, predicted, factors = self._labels.pairs(outputs, fields, weights)
        largest = largest_label("ConfusionMatrix", true, predicted, self._num_classes)
        counts = self.state["counts"]
        if largest >= len(counts):
            grown = np.zeros((largest + 1, largest + 1))
            grown[: len(counts), : len(counts)] = counts
            self.state["counts"] = counts = grown
        size = len(counts)
        # Each pair of labels is one number, so that one pass counts them all.
        counts += np.bincount(true * size + predicted, factors, minlength=size * size).reshape(
            size, size
        )

    def compute(self) -> dict[str, float]:
        """Each entry of the matrix; none where no sample was seen and the size is not given."""
        return {
            f"{true}/{predicted}": float(count)
            for (true, predicted), count in np.ndenumerate(self.matrix)
        }
