"""Multi-layer perceptron in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from expkit.models.numpy.layers import Array, Dropout, Gelu, Layer, Linear, ReLU, Sequential, Tanh
from expkit.models.numpy.module import Module
from expkit.models.validation import check_mlp

_ACTIVATIONS: dict[str, type[Layer]] = {"relu": ReLU, "gelu": Gelu, "tanh": Tanh}


@final
class Mlp(Module):
    """Linear layers with an activation between them.

    Args:
        in_features: numbers in one sample.
        out_features: numbers in one output: classes, or 1 for regression.
        hidden: width of each hidden layer; an empty list gives a linear model.
        activation: ``relu``, ``gelu`` (exact, by erf) or ``tanh``.
        dropout: share of activations dropped after each hidden layer in training.
        norm: ``none``; the other frameworks also have ``batch`` and ``layer``.
    """

    def __init__(
        self,
        *,
        in_features: int,
        out_features: int,
        hidden: Sequence[int] = (128,),
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        super().__init__()
        check_mlp(
            in_features=in_features,
            out_features=out_features,
            hidden=hidden,
            activation=activation,
            dropout=dropout,
            norm=norm,
            norms=("none",),
            norm_hint="model.norm=none, or driver=torch, driver=paddle",
        )
        layers: dict[str, Layer] = {}
        width = in_features
        for i, size in enumerate(hidden):
            layers[f"linear_{i}"] = Linear(width, size)
            layers[f"activation_{i}"] = _ACTIVATIONS[activation]()
            if dropout:
                layers[f"dropout_{i}"] = Dropout(dropout, self.rng)
            width = size
        layers["output"] = Linear(width, out_features)
        self.layers = Sequential(layers)

    def forward(self, x: Array) -> Array:
        """Map samples of any shape with ``in_features`` numbers to (N, out_features)."""
        return self.layers.forward(x.reshape(len(x), -1) if x.ndim > 2 else x)

    def backward(self, grad_output: Array) -> Array:
        """Add the gradients by the parameters; gives the gradient by the flattened samples."""
        return self.layers.backward(grad_output)
