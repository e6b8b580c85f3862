"""The losses and their gradients in NumPy: the reference for what each of them means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, Problem
from expkit.core.naming import name_of
from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
)

Array = NDArray[Any]
LossFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Array, Array | None]]
LossGradient = Callable[[Mapping[str, Any], Mapping[str, Any], Array], Array]
Elementwise = Callable[[Array, Array], Array]


def loss_function(spec: Loss) -> LossFunction:
    """The function ``(outputs, fields) -> (values, weights)`` of a spec.

    Values have one entry per sample and weights are None; where positions of a sample count
    differently both have the shape of the target.
    """
    if isinstance(spec, CrossEntropy):
        return _cross_entropy(spec)
    value, _ = _elementwise(spec)

    def function(
        outputs: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> tuple[Array, Array | None]:
        output, target = _read_aligned(spec, outputs, fields)
        values = value(output, target)
        return _sample_means(values), None

    return function


def loss_gradient(spec: Loss) -> LossGradient:
    """The function ``(outputs, fields, cotangent) -> gradient`` of a spec.

    ``cotangent`` has the shape of the values of `loss_function`; the gradient that of the output: d
    sum(cotangent * values) / d output.
    """
    if isinstance(spec, CrossEntropy):
        return _cross_entropy_gradient(spec)
    _, slope = _elementwise(spec)

    def gradient(outputs: Mapping[str, Any], fields: Mapping[str, Any], cotangent: Array) -> Array:
        output, target = _read_aligned(spec, outputs, fields)
        slopes = slope(output, target) * _per_position(cotangent, output.shape)
        return slopes.reshape(outputs[spec.output].shape)

    return gradient


def _cross_entropy(spec: CrossEntropy) -> LossFunction:
    smoothing = spec.label_smoothing

    def function(
        outputs: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> tuple[Array, Array | None]:
        logits, labels, kept = _read_logits(spec, outputs, fields)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=-1))
        values = log_sum - np.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
        if smoothing:
            values = (1 - smoothing) * values + smoothing * (log_sum - shifted.mean(axis=-1))
        if kept is not None:
            values = np.where(kept, values, 0)
        if spec.class_weights is None and kept is None:
            return _sample_means(values), None
        weights = np.ones_like(values)
        if spec.class_weights is not None:
            weights = np.asarray(spec.class_weights, dtype=values.dtype)[labels]
        return values, weights if kept is None else weights * kept

    return function


def _cross_entropy_gradient(spec: CrossEntropy) -> LossGradient:
    smoothing = spec.label_smoothing

    def gradient(outputs: Mapping[str, Any], fields: Mapping[str, Any], cotangent: Array) -> Array:
        logits, labels, kept = _read_logits(spec, outputs, fields)
        slopes = np.exp(logits - logits.max(axis=-1, keepdims=True))
        slopes /= slopes.sum(axis=-1, keepdims=True)
        slopes -= smoothing / logits.shape[-1]
        at_label = np.take_along_axis(slopes, labels[..., None], axis=-1)
        np.put_along_axis(slopes, labels[..., None], at_label - (1 - smoothing), axis=-1)
        factors = _per_position(cotangent, labels.shape)
        if kept is not None:
            factors = factors * kept
        result: Array = slopes * factors[..., None].astype(slopes.dtype, copy=False)
        return result

    return gradient


def _elementwise(spec: Loss) -> tuple[Elementwise, Elementwise]:
    """The value of one output entry, and its slope."""
    if isinstance(spec, MeanSquaredError):
        return (lambda x, y: np.square(x - y)), (lambda x, y: 2 * (x - y))
    if isinstance(spec, MeanAbsoluteError):
        return (lambda x, y: np.abs(x - y)), (lambda x, y: np.sign(x - y))
    if isinstance(spec, BinaryCrossEntropy):
        return _binary_cross_entropy, (lambda x, y: 0.5 * (1 + np.tanh(0.5 * x)) - y)
    if isinstance(spec, Huber):
        delta = spec.delta
        return (
            lambda x, y: _huber(np.abs(x - y), delta),
            lambda x, y: np.clip(x - y, -delta, delta),
        )
    message = (
        f"is {name_of(spec)}; driver=numpy computes only the losses of expkit.losses, since it "
        "needs their gradient; allowed: loss=cross_entropy, binary_cross_entropy, mse, mae, huber, "
        "or a driver that differentiates a function of your own"
    )
    raise ConfigError([Problem("loss", message, "driver=torch")])


def _binary_cross_entropy(x: Array, y: Array) -> Array:
    values: Array = np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))
    return values


def _huber(distance: Array, delta: float) -> Array:
    near = np.minimum(distance, delta)  # near * (distance - near / 2) is both parts in one
    return near * (distance - 0.5 * near)


def _read(spec: Loss, outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Array, Array]:
    try:
        return outputs[spec.output], np.asarray(fields[spec.target])
    except KeyError:
        raise spec.missing(outputs, fields) from None


def _read_aligned(
    spec: Loss, outputs: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[Array, Array]:
    output, target = spec.align(*_read(spec, outputs, fields))
    return output, target.astype(output.dtype, copy=False)


def _read_logits(
    spec: CrossEntropy, outputs: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[Array, Array, Array | None]:
    """Logits, labels with 0 where they do not count, and a mask of those that do (None = all)."""
    logits, labels = _read(spec, outputs, fields)
    # NumPy takes negative labels for positions from the end, so each batch is checked.
    spec.check(labels, logits.shape)
    if len(labels) != len(logits):
        raise spec.mismatch(logits.shape, labels.shape, "as many labels as samples")
    if spec.ignore_index is None:
        return logits, labels, None
    kept = labels != spec.ignore_index
    return logits, np.where(kept, labels, 0), kept


def _sample_means(values: Array) -> Array:
    means: Array = values.mean(axis=tuple(range(1, values.ndim))) if values.ndim > 1 else values
    return means


def _per_position(cotangent: Array, shape: tuple[int, ...]) -> Array:
    """The cotangent of each position; positions that were averaged share that of their sample."""
    if cotangent.shape == shape:
        return cotangent
    shared = cotangent / np.prod(shape[1:], dtype=np.int64)
    return np.broadcast_to(shared.reshape(-1, *[1] * (len(shape) - 1)), shape)
