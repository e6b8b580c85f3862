"""The losses in Paddle: one value per sample, on the device, options resolved beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle.nn import functional

from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    unknown_loss,
)

LossFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, Any]]

_HALF = frozenset({paddle.float16, paddle.bfloat16})
_INTEGERS = frozenset({paddle.int64, paddle.int32, paddle.int16, paddle.int8, paddle.uint8})
# Paddle always ignores one label, -100 unless told otherwise. This one does not occur.
_NO_LABEL = -(2**31)
_CUT_OFF = 64


def loss_function(spec: Loss) -> LossFunction:
    """The function ``(outputs, fields) -> (values, weights)`` of a spec.

    Values have one entry per sample and weights are None; where positions of a sample count
    differently both have the shape of the target. Half-precision outputs are judged in float32.
    """
    if isinstance(spec, CrossEntropy):
        return _cross_entropy(spec)
    elementwise = _elementwise(spec)
    output_name, target_name = spec.output, spec.target

    def function(outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Any, None]:
        try:
            output, target = outputs[output_name], fields[target_name]
        except KeyError:
            raise spec.missing(outputs, fields) from None
        if output.shape != target.shape:
            output, target = spec.align(output, target)
        if output.dtype in _HALF:
            output = output.astype(paddle.float32)
        if target.dtype is not output.dtype:
            target = target.astype(output.dtype)
        values = elementwise(output, target)
        return (values if values.ndim == 1 else values.flatten(1).mean(1)), None

    return function


def _cross_entropy(spec: CrossEntropy) -> LossFunction:
    output_name, target_name, smoothing = spec.output, spec.target, spec.label_smoothing
    ignored = _NO_LABEL if spec.ignore_index is None else spec.ignore_index
    all_alike = spec.class_weights is None and spec.ignore_index is None
    weigh = None if all_alike else _weights_of(spec, ignored)

    def function(outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Any, Any]:
        try:
            logits, labels = outputs[output_name], fields[target_name]
        except KeyError:
            raise spec.missing(outputs, fields) from None
        if labels.dtype is not paddle.int64:
            if labels.dtype not in _INTEGERS:
                raise spec.not_integer(labels.dtype)
            labels = labels.astype(paddle.int64)
        if logits.dtype in _HALF:
            logits = logits.astype(paddle.float32)
        shape = logits.shape
        if shape[:-1] != labels.shape or len(shape) < 2:
            raise spec.mismatch(shape, labels.shape, "logits (N, ..., C) with labels (N, ...)")
        flat = len(shape) == 2
        rows, row_labels = (logits, labels) if flat else (logits.flatten(0, -2), labels.flatten())
        values = _negative_log_likelihood(rows, row_labels, ignored)
        if smoothing:
            # Paddle's own smoothing makes labels one-hot first, which a negative ignore_index
            # breaks.
            evenly = paddle.logsumexp(rows, axis=-1) - rows.mean(-1)
            values = (1 - smoothing) * values + smoothing * evenly
            if spec.ignore_index is not None:
                values = paddle.where(row_labels != ignored, values, paddle.zeros_like(values))
        if not flat:
            values = values.reshape(labels.shape)
        if weigh is not None:
            return values, weigh(labels, values.dtype)
        return (values if flat else values.flatten(1).mean(1)), None

    return function


def _negative_log_likelihood(logits: Any, labels: Any, ignored: int) -> Any:
    """-log softmax at the label: logits (N, C), labels (N,); 0 where the label is to be ignored."""
    logs = functional.log_softmax(logits, -1)
    values = functional.nll_loss(logs, labels, ignore_index=ignored, reduction="none")
    # On CPUs Paddle cuts log-probabilities off at -64 (and with them cross_entropy at 64): the loss
    # of a run that diverges would look bounded. Looking is cheap there; the rare correction is the
    # plain formula.
    if values.place.is_cpu_place() and values.numpy().max(initial=0) >= _CUT_OFF:
        logs = logits - paddle.logsumexp(logits, axis=-1, keepdim=True)
        values = functional.nll_loss(logs, labels, ignore_index=ignored, reduction="none")
    return values


def _weights_of(spec: CrossEntropy, ignored: int) -> Callable[[Any, Any], Any]:
    """Gives each label its weight: that of its class, and 0 where it is to be ignored."""

    def weights(labels: Any, dtype: Any) -> Any:
        kept = labels != ignored
        if spec.class_weights is None:
            return kept.astype(dtype)
        table = paddle.to_tensor(spec.class_weights, dtype=dtype, place=labels.place)
        return table[paddle.where(kept, labels, paddle.zeros_like(labels))] * kept.astype(dtype)

    return weights


def _elementwise(spec: Loss) -> Callable[[Any, Any], Any]:
    """The value of each output entry."""
    if isinstance(spec, MeanSquaredError):
        return lambda output, target: functional.mse_loss(output, target, reduction="none")
    if isinstance(spec, MeanAbsoluteError):
        return lambda output, target: functional.l1_loss(output, target, reduction="none")
    if isinstance(spec, BinaryCrossEntropy):
        return lambda output, target: functional.binary_cross_entropy_with_logits(
            output, target, reduction="none"
        )
    if isinstance(spec, Huber):
        delta = float(spec.delta)
        return lambda output, target: functional.smooth_l1_loss(
            output, target, reduction="none", delta=delta
        )
    raise unknown_loss(spec)
