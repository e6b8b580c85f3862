"""What outputs say: labels, probabilities and values out of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import PredictionError

_DIGITS = 6  # of a probability; scores in float32 tell no more
_NO_LABEL = -1  # of a position that a model leaves without: padding


def as_given(output: NDArray[Any]) -> NDArray[Any]:
    """An output as it is; in integers that are several for a sample, -1 for none is masked."""
    if output.dtype.kind != "i" or output.ndim < 2:
        return output
    masked: NDArray[Any] = np.ma.masked_array(output, output == _NO_LABEL)
    return masked


def most_likely(scores: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The label of the greatest score, and its probability under the softmax.

    Of scores among which there is NaN, the label is None and the probability NaN.

    Args:
        scores: logits with the classes last; or integers, the labels of a model that decides itself
            (one that decodes a sequence): they are given back alone, see `as_given`.

    Raises:
        PredictionError: there is no axis of classes.
    """
    if scores.dtype.kind in "iu":
        return {"label": as_given(scores)}
    if scores.ndim < 2:
        raise PredictionError(
            f"the output has the shape {scores.shape}; allowed: logits (N, ..., C), or labels as "
            "integers"
        )
    with np.errstate(invalid="ignore"):  # of infinite scores the probability is NaN
        most = scores.max(axis=-1, keepdims=True)
        exact = np.subtract(scores, most, dtype=np.float64)
        likely = 1.0 / np.exp(exact, out=exact).sum(axis=-1)
    label = _or_none(scores.argmax(axis=-1), np.isnan(most[..., 0]))
    return {"label": label, "probability": likely.round(_DIGITS)}


def yes_or_no(logits: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Label 1 where the logit is above 0, else 0; and the probability of label 1.

    Of NaN the label is None and the probability NaN.
    """
    logits = without_last_axis(logits)
    with np.errstate(over="ignore"):  # exp(-x) may be infinite: the probability is 0 then
        likely = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    label = _or_none((logits > 0).astype(np.int64), np.isnan(logits))
    return {"label": label, "probability": likely.round(_DIGITS)}


def _or_none(labels: NDArray[Any], unknown: NDArray[np.bool_]) -> NDArray[Any]:
    """Labels, None where they are not known."""
    if not unknown.any():
        return labels
    known = labels.astype(object)
    known[unknown] = None
    return known


def without_last_axis(values: NDArray[Any]) -> NDArray[Any]:
    """Values of shape (N, ..., 1) as (N, ...)."""
    return values[..., 0] if values.ndim > 1 and values.shape[-1] == 1 else values
