"""The network in Paddle."""

from __future__ import annotations

import paddle
from paddle import Tensor, nn

from benchmarks.work import CLASSES, CLOCK, FEATURES, HIDDEN

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
