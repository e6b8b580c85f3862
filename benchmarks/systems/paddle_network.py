"""The networks in Paddle."""

from __future__ import annotations

import paddle
from paddle import Tensor, nn
from paddle.nn import functional

from benchmarks.work import (
    CLASSES,
    CLOCK,
    FEATURES,
    HEADS,
    HIDDEN,
    LAYERS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    Work,
)

paddle.set_device("cpu")


class Network(nn.Layer):
    """One hidden layer; ticks the clock at each training forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        return self.layers(x)


class LanguageModel(nn.Layer):
    """A transformer whose tokens see those before; ticks the clock as `Network` does."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = self.create_parameter(
            [LENGTH, WIDTH], default_initializer=nn.initializer.Constant(0.0)
        )
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, normalize_before=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.output = nn.Linear(WIDTH, VOCABULARY)
        mask = paddle.triu(paddle.full([LENGTH, LENGTH], float("-inf")), 1)
        self.register_buffer("mask", mask, persistable=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        return self.output(self.layers(self.tokens(x) + self.positions, self.mask))


def network(work: Work) -> nn.Layer:
    """The network of a work."""
    return LanguageModel() if work.network == "transformer" else Network()


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the samples, and over the tokens where there are any."""
    if outputs.ndim == 3:
        outputs, targets = outputs.flatten(0, 1), targets.flatten()
    return functional.cross_entropy(outputs, targets)


@paddle.no_grad()
def final_loss(model: nn.Layer, x: Tensor, y: Tensor) -> float:
    """Loss of a trained network on all samples."""
    model.eval()
    return float(loss_of(model(x), y))
