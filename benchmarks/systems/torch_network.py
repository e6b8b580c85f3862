"""The networks in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

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

torch.set_num_threads(1)


class Network(nn.Module):
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


class LanguageModel(nn.Module):
    """A transformer whose tokens see those before; ticks the clock as `Network` does."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        hidden = self.tokens(x) + self.positions
        return self.output(self.layers(hidden, mask=self.mask, is_causal=True))


def network(work: Work) -> nn.Module:
    """The network of a work."""
    return LanguageModel() if work.network == "transformer" else Network()


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the samples, and over the tokens where there are any."""
    if outputs.ndim == 3:
        outputs, targets = outputs.flatten(0, 1), targets.flatten()
    return functional.cross_entropy(outputs, targets)


@torch.no_grad()
def final_loss(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Loss of a trained network on all samples."""
    model.eval()
    return float(loss_of(model(x), y))
