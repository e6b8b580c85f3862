"""Fills a Paddle model with the first weights that all frameworks share."""

from __future__ import annotations

import paddle
from paddle import nn

from expkit.models.initializers import initial_value
from expkit.models.paddle.batch_norm import BatchNorm


def initialize(model: nn.Layer, seed: int) -> None:
    """Set the parameters of a bundled model by (seed, path), and statistics to those of no data."""
    with paddle.no_grad():
        for prefix, layer in model.named_sublayers(include_self=True):
            if isinstance(layer, BatchNorm):
                layer.reset_running_stats()
            for name, parameter in layer.named_parameters(prefix, include_sublayers=False):
                kind = "zeros" if name.endswith("bias") else _weight_kind(layer)
                value = initial_value(kind, name, tuple(parameter.shape), seed)
                parameter.set_value(value)


def _weight_kind(layer: nn.Layer) -> str:
    if isinstance(layer, nn.Linear):
        return "linear"
    if isinstance(layer, nn.Embedding):
        return "embedding"
    return "ones" if isinstance(layer, BatchNorm | nn.LayerNorm) else "conv"
