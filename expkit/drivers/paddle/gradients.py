"""Clipping of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle import Tensor


@paddle.no_grad()
def clip(gradients: Sequence[Tensor], max_norm: float | None, max_value: float | None) -> Tensor:
    """Clip gradients in place, by their global L2 norm, or each entry by value.

    Returns:
        The norm before clipping.
    """
    squares = [(gradient.astype("float32") ** 2).sum() for gradient in gradients]
    norm = paddle.add_n(squares).sqrt() if squares else paddle.zeros([])
    if max_norm is not None:
        factor = paddle.clip(max_norm / (norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.multiply_(factor.astype(gradient.dtype))
    if max_value is not None:
        for gradient in gradients:
            gradient.clip_(-max_value, max_value)
    return norm
