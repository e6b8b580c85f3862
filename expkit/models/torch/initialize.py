"""Fills a PyTorch model with the first weights that all frameworks share."""

from __future__ import annotations

import torch
from torch import nn

from expkit.models.initializers import initial_value
from expkit.models.torch.crf import LinearChainCrf

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)


def initialize(model: nn.Module, seed: int) -> None:
    """Set the parameters of a bundled model by (seed, path), and statistics to those of no data.

    A Linear kernel is drawn in the shape (in, out) and transposed: PyTorch keeps it as (out, in).
    """
    with torch.no_grad():
        for prefix, module in model.named_modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.reset_running_stats()
            for name, parameter in module.named_parameters(prefix, recurse=False):
                kind = _kind(module, name.rpartition(".")[2])
                shape = tuple(parameter.shape)
                if kind == "linear":
                    value = initial_value(kind, name, shape[::-1], seed).T
                else:
                    value = initial_value(kind, name, shape, seed)
                parameter.copy_(torch.tensor(value))


def _kind(module: nn.Module, name: str) -> str:
    if name.startswith("bias") or isinstance(module, LinearChainCrf):
        return "zeros"
    if isinstance(module, nn.Linear):
        return "linear"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if isinstance(module, nn.LSTM):
        return "lstm"
    return "ones" if isinstance(module, _NORMS) else "conv"
