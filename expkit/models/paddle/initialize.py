"""Fills a Paddle model with the first weights that all frameworks share."""

from __future__ import annotations

import paddle
from paddle import nn

from expkit.models.initializers import initial_value
from expkit.models.paddle.batch_norm import BatchNorm
from expkit.models.paddle.crf import LinearChainCrf


def initialize(model: nn.Layer, seed: int) -> None:
    """Set the parameters of a bundled model by (seed, path), and statistics to those of no data."""
    paths = {path for path, _ in model.named_parameters()}  # recurrent layers list some twice
    with paddle.no_grad():
        for prefix, layer in model.named_sublayers(include_self=True):
            if isinstance(layer, BatchNorm):
                layer.reset_running_stats()
            for name, parameter in layer.named_parameters(prefix, include_sublayers=False):
                if name in paths:
                    kind = _kind(layer, name.rpartition(".")[2])
                    parameter.set_value(initial_value(kind, name, tuple(parameter.shape), seed))


def _kind(layer: nn.Layer, name: str) -> str:
    if name.startswith("bias") or isinstance(layer, LinearChainCrf):
        return "zeros"
    if isinstance(layer, nn.Linear):
        return "linear"
    if isinstance(layer, nn.Embedding):
        return "embedding"
    if isinstance(layer, nn.LSTM):
        return "lstm"
    return "ones" if isinstance(layer, BatchNorm | nn.LayerNorm) else "conv"
