"""Errors of real-valued predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import DataError
from expkit.core.metric import HostArrays
from expkit.metrics.labels import read
from expkit.metrics.mean import MeanMetric, sample_sums


class ErrorMetric(MeanMetric):
    """Base of means over output - target; several outputs of a sample count alike.

    NaN over no samples.

    Args:
        output: model output with the predictions.
        target: field with the true values.
    """

    def __init__(self, output: str = "output", target: str = "y") -> None:
        super().__init__()
        self.needs = (output,)
        self._output = output
        self._target = target

    def errors(self, outputs: HostArrays, fields: Mapping[str, Any]) -> NDArray[np.float64]:
        """Output - target in float64."""
        predictions, targets = read_numbers(
            type(self).__name__, outputs, self._output, fields, self._target
        )
        return predictions - targets


class MeanSquaredError(ErrorMetric):
    """mean((output - target) ** 2)."""

    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The squared errors of each sample and their number."""
        return sample_sums(np.square(self.errors(outputs, fields)))

    def result(self, mean: float) -> float:
        """The mean itself."""
        return mean


class RootMeanSquaredError(ErrorMetric):
    """sqrt(mean((output - target) ** 2)), in the unit of the target."""

    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The squared errors of each sample and their number."""
        return sample_sums(np.square(self.errors(outputs, fields)))

    def result(self, mean: float) -> float:
        """The root of the mean."""
        return math.sqrt(mean)


class MeanAbsoluteError(ErrorMetric):
    """mean(abs(output - target)), in the unit of the target."""

    def terms(
        self, outputs: HostArrays, fields: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The absolute errors of each sample and their number."""
        return sample_sums(np.abs(self.errors(outputs, fields)))

    def result(self, mean: float) -> float:
        """The mean itself."""
        return mean


def read_numbers(
    owner: str, outputs: HostArrays, output: str, fields: Mapping[str, Any], target: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predictions and targets in float64 and of one shape.

    A last axis of length 1 that only one of them has is dropped.

    Raises:
        DataError: other shapes (nothing is broadcast), or no numbers.
    """
    predictions, targets = read(owner, outputs, output, fields, target)
    if predictions.dtype.kind not in "iuf" or targets.dtype.kind not in "iuf":
        raise DataError(
            f"{owner}: output {output!r} is of type {predictions.dtype} and field {target!r} of "
            f"type {targets.dtype}; allowed: real numbers"
        )
    left, right = predictions.shape, targets.shape
    if left != right and left != (*right, 1) and right != (*left, 1):
        raise DataError(
            f"{owner}: output {output!r} has the shape {left} and field {target!r} the shape "
            f"{right}; allowed: equal shapes, or one of them with a last axis of length 1 more"
        )
    shape = min(left, right, key=len)
    # In float64 before the difference is taken, for the sums of squares to keep their digits.
    return predictions.reshape(shape).astype(np.float64), targets.reshape(shape).astype(np.float64)
