"""The losses in torch: one value per sample, on the device, options resolved beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    unknown_loss,
)

LossFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Tensor, Tensor | None]]

_HALF = frozenset({torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
# torch always ignores one label, -100 unless told otherwise. This one cannot occur.
_NO_LABEL = torch.iinfo(torch.int64).min


Reduction = Literal["none", "mean"]


def loss_function(spec: Loss, reduction: Reduction = "none") -> LossFunction:
    """The function ``(outputs, fields) -> (values, weights)`` of a spec.

    Values have one entry per sample and weights are None; where positions of a sample count
    differently both have the shape of the target. Half-precision outputs are judged in float32.

    Args:
        spec: the loss.
        reduction: ``mean`` gives the mean over the samples in place of the values, where all
            positions count alike: the kernels for it are a good deal cheaper.
    """
    if isinstance(spec, CrossEntropy):
        return _cross_entropy(spec, reduction)
    elementwise = _elementwise(spec, reduction)
    output_name, target_name = spec.output, spec.target

    def function(outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Tensor, None]:
        try:
            output, target = outputs[output_name], fields[target_name]
        except KeyError:
            raise spec.missing(outputs, fields) from None
        if output.shape != target.shape:
            output, target = spec.align(output, target)
        if output.dtype in _HALF:
            output = output.float()
        values = elementwise(output, target.to(output.dtype))
        return (values if values.ndim < 2 else values.flatten(1).mean(1)), None

    return function


def _cross_entropy(spec: CrossEntropy, reduction: Reduction) -> LossFunction:
    output_name, target_name, smoothing = spec.output, spec.target, spec.label_smoothing
    ignored = _NO_LABEL if spec.ignore_index is None else spec.ignore_index
    all_alike = spec.class_weights is None and spec.ignore_index is None
    weigh = None if all_alike else _weights_of(spec, ignored)
    kernel_reduction = reduction if all_alike else "none"

    def function(
        outputs: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        try:
            logits, labels = outputs[output_name], fields[target_name]
        except KeyError:
            raise spec.missing(outputs, fields) from None
        if labels.dtype is not torch.int64:
            if labels.dtype not in _INTEGERS:
                raise spec.not_integer(labels.dtype)
            labels = labels.long()
        if logits.dtype in _HALF:
            logits = logits.float()
        if logits.shape[:-1] != labels.shape or logits.ndim < 2:
            raise spec.mismatch(
                logits.shape, labels.shape, "logits (N, ..., C) with labels (N, ...)"
            )
        flat = logits.ndim == 2
        values = functional.cross_entropy(
            logits if flat else logits.flatten(0, -2),
            labels if flat else labels.flatten(),
            ignore_index=ignored,
            reduction=kernel_reduction,
            label_smoothing=smoothing,
        )
        if weigh is not None:
            return values.view(labels.shape), weigh(labels, values.dtype)
        if flat or values.ndim == 0:
            return values, None
        return values.view(labels.shape).flatten(1).mean(1), None

    return function


def _weights_of(spec: CrossEntropy, ignored: int) -> Callable[[Tensor, torch.dtype], Tensor]:
    """Gives each label its weight: that of its class, and 0 where it is to be ignored."""
    by_device: dict[torch.device, Tensor] = {}

    def weights(labels: Tensor, dtype: torch.dtype) -> Tensor:
        kept = labels.ne(ignored)
        if spec.class_weights is None:
            return kept.to(dtype)
        if labels.device not in by_device:
            table = torch.tensor(spec.class_weights, dtype=torch.float64, device=labels.device)
            by_device[labels.device] = table
        return by_device[labels.device].to(dtype)[torch.where(kept, labels, 0)] * kept

    return weights


def _elementwise(spec: Loss, reduction: Reduction) -> Callable[[Tensor, Tensor], Tensor]:
    """The value of each output entry, or their mean."""
    if isinstance(spec, MeanSquaredError):
        return lambda output, target: functional.mse_loss(output, target, reduction=reduction)
    if isinstance(spec, MeanAbsoluteError):
        return lambda output, target: functional.l1_loss(output, target, reduction=reduction)
    if isinstance(spec, BinaryCrossEntropy):
        return lambda output, target: functional.binary_cross_entropy_with_logits(
            output, target, reduction=reduction
        )
    if isinstance(spec, Huber):
        delta = float(spec.delta)
        return lambda output, target: functional.huber_loss(
            output, target, reduction=reduction, delta=delta
        )
    raise unknown_loss(spec)
