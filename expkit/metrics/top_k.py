"""The share of labels among the k best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays
from expkit.metrics.labels import check_labels, read
from expkit.metrics.mean import MeanMetric, kept_sums


class TopKAccuracy(MeanMetric):
    """How often the true label is among the k greatest scores; NaN over no samples.

    NaN too where a score of a position that counts is NaN: nobody knows which are the greatest. Of
    equal scores the lower class comes first, so that k=1 is `Accuracy`.

    Args:
        k: how many of the best classes may hold the label.
        output: model output with scores, classes last.
        target: field with the true labels.
        ignore_index: label of positions that do not count; None = all count.
    """

    def __init__(
        self, k: int = 5, output: str = "output", target: str = "y", ignore_index: int | None = None
    ) -> None:
        super().__init__()
        if type(k) is not int or k < 1:
            message = f"k of TopKAccuracy is {k!r}; allowed: an integer from 1"
            raise ConfigError([Problem("metrics", message, "metrics.<name>.k=5")])
        self.needs = (output,)
        self._k = k
        self._output = output
        self._target = target
        self._ignore_index = ignore_index

    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """How many labels of each sample are among the k best, and how many it has."""
        scores, target = read("TopKAccuracy", outputs, self._output, fields, self._target)
        self._check(scores, target)
        kept = None if self._ignore_index is None else target != self._ignore_index
        labels = target if kept is None else np.where(kept, target, 0)
        classes = scores.shape[-1]
        check_labels("TopKAccuracy", self._target, labels, classes)
        own = np.take_along_axis(scores, labels[..., None], axis=-1)
        ties = (scores == own) & (np.arange(classes) < labels[..., None])
        right: NDArray[Any] = ((scores > own) | ties).sum(axis=-1) < self._k
        greatest = scores.max(axis=-1)  # NaN where any of them is
        if np.isnan(greatest).any():
            right = np.where(np.isnan(greatest), np.nan, right)
        return kept_sums(right, kept)

    def result(self, mean: float) -> float:
        """The share itself."""
        return mean

    def _check(self, scores: NDArray[Any], target: NDArray[Any]) -> None:
        if scores.ndim < 2 or scores.shape[:-1] != target.shape or target.dtype.kind not in "iu":
            raise DataError(
                f"TopKAccuracy: output {self._output!r} is {scores.dtype} of shape {scores.shape}, "
                f"field {self._target!r} is {target.dtype} of shape {target.shape}; allowed: "
                "scores (N, ..., C) with integer labels (N, ...)"
            )
        if self._k > scores.shape[-1]:
            raise DataError(
                f"TopKAccuracy has k={self._k}, but output {self._output!r} has {scores.shape[-1]} "
                f"classes; allowed: 1 to {scores.shape[-1]}"
            )
