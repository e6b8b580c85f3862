"""The area under the receiver operating characteristic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import Collective
from expkit.core.errors import ConfigError, Problem
from expkit.core.metric import HostArrays
from expkit.metrics.gathered import GatheredMetric
from expkit.metrics.labels import LabelReader

AVERAGES = ("macro", "weighted", "none")


class AUROC(GatheredMetric):
    """How often a sample of a class is scored above one of another class; a tie counts half.

    That is the area under the ROC curve (Hanley and McNeil 1982), here by the rank sum of Mann and
    Whitney (1947). With one score per sample, or two classes, class 1 is judged against class 0.
    With more, each class is judged against the rest, by its softmax probability.

    A class is undefined where all samples belong to it, or none: it is left out of means. NaN where
    no class is defined, and where a score is NaN.

    It takes all samples at once: each process keeps the scores of its share, and at the end of the
    evaluation those of all, N x classes x 4 bytes in float32.

    Args:
        average: over more than two classes: ``macro`` = their mean, ``weighted`` = the mean
            weighted by how often a class is the true label, ``none`` = each class as ``name/0``.
        output: model output with scores before the softmax, classes last, or one logit.
        target: field with the true labels.
        ignore_index: label of positions that do not count; None = all count.
    """

    def __init__(
        self,
        average: str = "macro",
        output: str = "output",
        target: str = "y",
        ignore_index: int | None = None,
    ) -> None:
        if average not in AVERAGES:
            message = f"average of AUROC is {average!r}; allowed: {', '.join(AVERAGES)}"
            raise ConfigError([Problem("metrics", message, "metrics.<name>.average=macro")])
        self.needs = (output,)
        self._average = average
        self._reader = LabelReader("AUROC", output, target, ignore_index)
        self.reset()

    def reset(self) -> None:
        """No samples."""
        self.state = {}
        self._batches: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]] = []

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Keep the scores of a batch, without its padding."""
        scores, true, factors = self._reader.scores(outputs, fields, weights)
        classes = max(scores.shape[1], 2)
        self._reader.check(true, classes)
        self._batches.append((scores, true, factors))

    def reduce(self, group: Collective) -> None:
        """Take the samples of all ranks."""
        self._batches = [batch for rank in group.all_gather(self._batches) for batch in rank]

    def compute(self) -> dict[str, float]:
        """The area, or the area of each class."""
        if not self._batches:
            return {"": float("nan")}
        scores, true, factors = map(np.concatenate, zip(*self._batches, strict=True))
        if scores.shape[1] <= 2:
            # The difference of two scores is the logit of class 1.
            logits = scores[:, -1].astype(np.float64)
            if scores.shape[1] == 2:
                logits -= scores[:, 0]
            return {"": _area(logits, true == 1, factors)}
        shares = _softmax(scores)
        classes = range(scores.shape[1])
        areas = np.array([_area(shares[:, label], true == label, factors) for label in classes])
        if self._average == "none":
            return {str(label): float(area) for label, area in enumerate(areas)}
        counts = np.bincount(true, factors, minlength=len(areas))
        defined = ~np.isnan(areas)
        if not defined.any():  # so it is where a score is NaN: the softmax spreads it
            return {"": float("nan")}
        if self._average == "macro":
            counts = np.ones_like(areas)
        return {"": float(np.average(areas[defined], weights=counts[defined]))}


def _area(
    scores: NDArray[np.float64], positive: NDArray[np.bool_], factors: NDArray[np.float64]
) -> float:
    """The weighted share of (positive, negative) pairs in the right order; NaN without a pair."""
    if np.isnan(scores).any():
        return float("nan")
    _, place = np.unique(scores, return_inverse=True)
    right = np.bincount(place, factors * positive)
    wrong = np.bincount(place, factors * ~positive)
    pairs = right.sum() * wrong.sum()
    return float(right @ (np.cumsum(wrong) - wrong / 2) / pairs) if pairs else float("nan")


def _softmax(scores: NDArray[Any]) -> NDArray[np.float64]:
    shares = scores.astype(np.float64)
    shares -= shares.max(axis=1, keepdims=True)
    np.exp(shares, out=shares)
    # In order of size, so that the same scores in another order of classes are a tie.
    shares /= np.sort(shares, axis=1).sum(axis=1, keepdims=True)
    return shares
