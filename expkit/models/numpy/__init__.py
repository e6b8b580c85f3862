"""The bundled model for the NumPy driver, and the parts to build one's own from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from expkit.models.lazy import lazy_exports

if TYPE_CHECKING:
    from expkit.models.numpy.layers import (
        Dropout,
        Gelu,
        Layer,
        Linear,
        Parameter,
        ReLU,
        Sequential,
        Tanh,
    )
    from expkit.models.numpy.mlp import Mlp
    from expkit.models.numpy.module import Module

__all__ = [
    "Dropout",
    "Gelu",
    "Layer",
    "Linear",
    "Mlp",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "Tanh",
]

_ELSEWHERE = {
    "Cnn": "cnn",
    "LstmTagger": "bilstm_crf",
    "TextCnn": "text_cnn",
    "Transformer": "transformer",
    "TransformerTagger": "transformer_crf",
}

_export = lazy_exports(
    __name__,
    dict.fromkeys(__all__, "layers") | {"Mlp": "mlp", "Module": "module"},
)


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise AttributeError(
            f"model {_ELSEWHERE[name]} has no NumPy version; "
            "allowed: mlp (or driver=torch, driver=paddle)"
        )
    return _export(name)
