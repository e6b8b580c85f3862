"""Convolutional network for images, for Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from paddle import Tensor, nn

from expkit.models.paddle.batch_norm import BatchNorm
from expkit.models.paddle.initialize import initialize
from expkit.models.validation import check_cnn


@final
class Cnn(nn.Layer):
    """Convolutions that each halve the image, then one hidden layer.

    The plan of LeNet-5 (LeCun et al., Proceedings of the IEEE, 1998).

    Args:
        in_channels: channels of an image.
        image_size: height and width, or one number for a square.
        out_features: numbers in one output.
        channels: channels after each 3x3 convolution, ReLU and 2x2 max-pooling.
        hidden: width of the hidden layer.
        dropout: share of the hidden layer dropped in training.
        norm: ``none`` or ``batch``: normalisation before the ReLU of each convolution.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        image_size: int | Sequence[int],
        out_features: int,
        channels: Sequence[int] = (32, 64),
        hidden: int = 128,
        dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        super().__init__()
        size = tuple(image_size) if isinstance(image_size, Sequence) else (image_size, image_size)
        check_cnn(
            in_channels=in_channels,
            image_size=size,
            channels=channels,
            hidden=hidden,
            out_features=out_features,
            dropout=dropout,
            norm=norm,
        )
        layers: dict[str, nn.Layer] = {}
        width = in_channels
        for i, count in enumerate(channels):
            # Batch normalisation takes away what a bias adds.
            bias = False if norm == "batch" else None
            layers[f"conv_{i}"] = nn.Conv2D(width, count, kernel_size=3, padding=1, bias_attr=bias)
            if norm == "batch":
                layers[f"norm_{i}"] = BatchNorm(count)
            layers[f"activation_{i}"] = nn.ReLU()
            layers[f"pool_{i}"] = nn.MaxPool2D(2)
            width = count
        height, breadth = (side // 2 ** len(channels) for side in size)
        layers["flatten"] = nn.Flatten()
        layers["hidden"] = nn.Linear(width * height * breadth, hidden)
        layers["activation"] = nn.ReLU()
        if dropout:
            layers["dropout"] = nn.Dropout(dropout)
        layers["output"] = nn.Linear(hidden, out_features)
        self.layers = nn.Sequential(*layers.items())

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path)."""
        initialize(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, in_channels, height, width) to (N, out_features)."""
        return self.layers(x)
