"""The network in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.work import CLASSES, CLOCK, FEATURES, HIDDEN

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
