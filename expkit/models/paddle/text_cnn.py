"""Convolutional network for text, for Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F  # noqa: N812 - the name everybody knows it by

from expkit.models.paddle.initialize import initialize
from expkit.models.validation import check_text_cnn


@final
class TextCnn(nn.Layer):
    """Convolutions of several widths over token embeddings, and their maxima over time.

    Source: Kim, EMNLP 2014. A window begins at each token and looks ahead, into padding at the end
    of the text. So each text has as many windows as tokens, texts may be shorter than a window, and
    how much padding follows them changes nothing.

    Args:
        vocab_size: number of tokens.
        out_features: numbers in one output.
        embedding_dim: size of a token's embedding.
        kernel_sizes: width of each kind of window, in tokens.
        num_filters: filters of each width.
        dropout: share of the maxima dropped in training.
        pad_id: the token that pads texts on the right; its embedding stays 0.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        out_features: int,
        embedding_dim: int = 100,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        num_filters: int = 100,
        dropout: float = 0.5,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_text_cnn(
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            kernel_sizes=kernel_sizes,
            num_filters=num_filters,
            out_features=out_features,
            dropout=dropout,
            pad_id=pad_id,
        )
        self.pad_id = pad_id
        self.lookahead = max(kernel_sizes) - 1
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=pad_id)
        self.convs = nn.LayerList(
            [nn.Conv1D(embedding_dim, num_filters, size) for size in kernel_sizes]
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(num_filters * len(kernel_sizes), out_features)

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path); the embedding of padding is 0."""
        initialize(self, seed)
        with paddle.no_grad():
            self.embedding.weight[self.pad_id] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Map token numbers (N, T) to (N, out_features)."""
        length = x.shape[1]
        padding = (x == self.pad_id).unsqueeze(1)
        extended = F.pad(x, [0, self.lookahead], value=self.pad_id)
        embedded = self.embedding(extended).transpose([0, 2, 1])
        maxima = []
        for conv in self.convs:
            found = F.relu(conv(embedded)[:, :, :length])
            # 0 is the least that ReLU gives, so what begins in the padding never is the maximum.
            found = found.masked_fill(padding, 0.0)
            # The same as amax(axis=2), whose backward is 70 times as slow on a CPU.
            maxima.append(F.adaptive_max_pool1d(found, 1).squeeze(2))
        return self.output(self.dropout(paddle.concat(maxima, axis=1)))
