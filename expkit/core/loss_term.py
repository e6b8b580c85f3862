"""The losses of a micro-batch: on the device as terms, on the host as sums (`Driver`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LossTerm:
    """The loss of one micro-batch, still on the device.

    Attributes:
        values: framework tensor; one value per sample (first axis), one per token (with
            ``weights``), or a scalar mean.
        weights: framework tensor of the shape of ``values``; None where each value counts 1.
        size: sum of the weights, where it is known without looking at the device (samples); None
            where the loss weighs tokens. A scalar mean counts ``size`` times.
    """

    __slots__ = ("size", "values", "weights")

    def __init__(self, values: Any, weights: Any, size: float | None) -> None:
        self.values = values
        self.weights = weights
        self.size = size


def sum_losses(
    terms: Sequence[LossTerm], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The sums that `Driver.read_losses` returns, from what it brought to the host.

    Args:
        terms: the losses.
        values: all their values, flattened and in order.
        weights: all weights of those terms that have some, flattened and in order.

    Returns:
        Shape (len(terms), 2): weighted sum, sum of the weights.
    """
    sums = np.empty((len(terms), 2))
    start = weights_start = 0
    for row, term in enumerate(terms):
        count = math.prod(term.values.shape)
        part = values[start : start + count]
        start += count
        if term.weights is not None:
            own = weights[weights_start : weights_start + count]
            weights_start += count
            sums[row] = np.dot(part, own), own.sum()
        elif len(term.values.shape) == 0:
            sums[row] = part[0] * (term.size or 0.0), term.size
        else:
            sums[row] = part.sum(), term.size
    return sums


def losses_by_sample(
    values: NDArray[Any], weights: NDArray[Any] | None, num_samples: int
) -> dict[str, NDArray[Any]]:
    """The losses of one batch as `Driver.evaluate_step` gives them.

    Args:
        values: a scalar mean, one value per sample, or one per token.
        weights: of the shape of ``values``, or None.
        num_samples: samples in the batch.

    Returns:
        ``loss`` of shape (n,); with ``loss_weight`` of shape (n,) where the loss has weights of its
        own.
    """
    if values.ndim == 0:
        return {"loss": np.full(num_samples, values)}
    if weights is None:
        return {"loss": values.reshape(num_samples, -1).mean(axis=1)}
    weighted = (values.astype(np.float64) * weights).reshape(num_samples, -1)
    counts = weights.astype(np.float64).reshape(num_samples, -1)
    return {"loss": weighted.sum(axis=1), "loss_weight": counts.sum(axis=1)}
