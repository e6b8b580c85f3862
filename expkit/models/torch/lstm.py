"""Bidirectional LSTM encoder for PyTorch."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn


@final
class BiLstmLayer(nn.Module):
    """Two LSTMs: one reads each sequence from its first token on, the other from its last.

    Source: Hochreiter and Schmidhuber, Neural Computation, 1997; Graves and Schmidhuber, Neural
    Networks, 2005. Both meet the padding last, so that it changes nothing.

    Args:
        in_features: numbers in a token's vector.
        hidden: numbers in the state of each LSTM.
    """

    def __init__(self, in_features: int, hidden: int) -> None:
        super().__init__()
        self.ahead = nn.LSTM(in_features, hidden, batch_first=True)
        self.back = nn.LSTM(in_features, hidden, batch_first=True)

    def forward(self, x: Tensor, turned: Tensor) -> Tensor:
        """Map (N, T, in_features) to (N, T, 2 * hidden).

        Args:
            x: a vector for each token.
            turned: places of the tokens from the last to the first, then of the padding, (N, T, 1).
        """
        ahead, _ = self.ahead(x)
        back, _ = self.back(torch.take_along_dim(x, turned, 1))
        # Turning is its own reverse: the same places bring the outputs back into order.
        return torch.cat([ahead, torch.take_along_dim(back, turned, 1)], 2)


@final
class BiLstm(nn.Module):
    """Bidirectional LSTMs, one above the other.

    Args:
        in_features: numbers in a token's vector.
        hidden: numbers in the state of each direction.
        n_layers: number of layers.
        dropout: share of what goes into each layer, and out of the last, dropped in training.
    """

    def __init__(self, in_features: int, hidden: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            BiLstmLayer(2 * hidden if i else in_features, hidden) for i in range(n_layers)
        )

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """Map (N, T, in_features) to (N, T, 2 * hidden); ``keep`` (N, T) marks the tokens."""
        place = torch.arange(x.shape[1], device=x.device)
        last = keep.sum(1, keepdim=True) - 1
        turned = torch.where(keep, last - place, place).unsqueeze(2)
        for layer in self.layers:
            x = layer(self.dropout(x), turned)
        return self.dropout(x)
