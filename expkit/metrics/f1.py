"""Precision, recall and F1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, Problem
from expkit.core.metric import HostArrays, Metric
from expkit.metrics.labels import LabelReader, check_num_classes, largest_label

AVERAGES = ("macro", "micro", "weighted", "none", "binary")


class PrecisionRecallF1(Metric):
    """F1 under the metric's own name, with ``name/precision`` and ``name/recall``.

    precision = tp / (tp + fp), recall = tp / (tp + fn), F1 = 2 tp / (2 tp + fp + fn) (van
    Rijsbergen 1979). A ratio 0 / 0 of a class that occurs is 0. Classes that occur neither as
    label nor as prediction are left out of means. NaN over no samples. All is NaN where a score of
    a position that counts is NaN: nobody knows what is predicted there.

    Args:
        average: ``macro`` = mean over classes, ``micro`` = from the counts of all classes together,
            ``weighted`` = mean weighted by how often a class is the true label, ``none`` = each
            class as ``name/0``, ``name/precision/0``, ``binary`` = class 1 of two.
        output: model output, see `expkit.metrics.labels.LabelReader`.
        target: field with the true labels.
        ignore_index: label of positions that do not count; None = all count.
        num_classes: how many classes there are; None = as many as occur.
    """

    def __init__(
        self,
        average: str = "macro",
        output: str = "output",
        target: str = "y",
        ignore_index: int | None = None,
        num_classes: int | None = None,
    ) -> None:
        if average not in AVERAGES:
            message = f"average of PrecisionRecallF1 is {average!r}; allowed: {', '.join(AVERAGES)}"
            raise ConfigError([Problem("metrics", message, "metrics.<name>.average=macro")])
        check_num_classes("PrecisionRecallF1", num_classes)
        if average == "binary" and num_classes not in (None, 2):
            message = f"num_classes is {num_classes} with average=binary; allowed: 2, or null"
            raise ConfigError([Problem("metrics", message, "metrics.<name>.average=macro")])
        self.needs = (output,)
        self._average = average
        self._labels = LabelReader("PrecisionRecallF1", output, target, ignore_index)
        self._num_classes = 2 if average == "binary" else num_classes
        self.reset()

    def reset(self) -> None:
        """Empty counts: true positives, predictions and true labels in rows, classes in columns."""
        self.state = {"counts": np.zeros((3, self._num_classes or 0))}

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Count the labels of a batch."""
        true, predicted, factors = self._labels.pairs(outputs, fields, weights)
        largest = largest_label("PrecisionRecallF1", true, predicted, self._num_classes)
        counts = self.state["counts"]
        if largest >= counts.shape[1]:
            self.state["counts"] = counts = np.pad(
                counts, ((0, 0), (0, largest + 1 - counts.shape[1]))
            )
        size = counts.shape[1]
        right = true == predicted
        counts[0] += np.bincount(
            true[right], None if factors is None else factors[right], minlength=size
        )
        counts[1] += np.bincount(predicted, factors, minlength=size)
        counts[2] += np.bincount(true, factors, minlength=size)

    def compute(self) -> dict[str, float]:
        """F1, precision and recall."""
        counts = self.state["counts"]
        if np.isnan(counts).any():  # in one class: it could have been any
            counts = np.full_like(counts, np.nan)
        if self._average == "micro":
            counts = counts.sum(axis=1, keepdims=True)
        elif self._average == "binary":
            counts = counts[:, 1:]
        ratios = precision_recall_f1(counts)
        if self._average == "none":
            return {
                f"{name}/{label}" if name else str(label): float(value)
                for name, values in ratios.items()
                for label, value in enumerate(values)
            }
        _, predicted, true = counts
        occurs = predicted + true > 0
        shares = true if self._average == "weighted" else np.ones_like(true)
        total = float(shares[occurs].sum())
        return {
            name: float(values[occurs] @ shares[occurs]) / total if total else float("nan")
            for name, values in ratios.items()
        }


def precision_recall_f1(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The three ratios of each column; NaN where there is neither a prediction nor a truth.

    Args:
        counts: rows = true positives, predictions, truths.

    Returns:
        F1 as ``""``, and ``precision`` and ``recall``.
    """
    right, predicted, true = counts
    occurs = predicted + true > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "": np.where(occurs, 2 * right / (predicted + true), np.nan),
            "precision": np.where(predicted > 0, right / predicted, np.where(occurs, 0, np.nan)),
            "recall": np.where(true > 0, right / true, np.where(occurs, 0, np.nan)),
        }
