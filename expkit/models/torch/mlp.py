"""Multi-layer perceptron for PyTorch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from expkit.models.torch.initialize import initialize
from expkit.models.validation import check_mlp

_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}
_NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@final
class Mlp(nn.Module):
    """Linear layers with an activation between them.

    Args:
        in_features: numbers in one sample.
        out_features: numbers in one output: classes, or 1 for regression.
        hidden: width of each hidden layer; an empty list gives a linear model.
        activation: ``relu``, ``gelu`` (exact, by erf) or ``tanh``.
        dropout: share of activations dropped after each hidden layer in training.
        norm: ``none``, ``batch`` or ``layer``: normalisation before each activation.
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
        )
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        width = in_features
        for i, size in enumerate(hidden):
            # Batch normalisation takes away what a bias adds.
            layers[f"linear_{i}"] = nn.Linear(width, size, bias=norm != "batch")
            if norm != "none":
                layers[f"norm_{i}"] = _NORMS[norm](size)
            layers[f"activation_{i}"] = _ACTIVATIONS[activation]()
            if dropout:
                layers[f"dropout_{i}"] = nn.Dropout(dropout)
            width = size
        layers["output"] = nn.Linear(width, out_features)
        self.layers = nn.Sequential(layers)

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path)."""
        initialize(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Map samples of any shape with ``in_features`` numbers to (N, out_features)."""
        if x.ndim > 2:
            x = x.flatten(1)
        for layer in self.layers:  # as the container does, less one call
            x = layer(x)
        return x
