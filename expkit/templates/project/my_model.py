"""A model of my own: a plain torch module."""

from __future__ import annotations

import torch
from torch import nn


class MyModel(nn.Module):
    """A small multi-layer perceptron.

    The names of the arguments of ``forward`` choose the fields of the batch; what it returns goes
    to the loss.
    """

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, out_features),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits for each sample."""
        logits: torch.Tensor = self.layers(x)
        return logits
