"""Transformer encoder and decoder-only language model for Paddle."""

from __future__ import annotations

from typing import final

from paddle import Tensor, nn
from paddle.nn import functional as F  # noqa: N812 - the name everybody knows it by

from expkit.models.paddle.initialize import initialize
from expkit.models.validation import check_length, check_transformer


@final
class SelfAttention(nn.Layer):
    """Multi-head self-attention (Vaswani et al., NeurIPS 2017).

    Args:
        d_model: width of the model.
        n_heads: number of heads; divides ``d_model``.
        dropout: share of the attention weights dropped in training.
        causal: each token sees itself and the tokens before it only.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads = (n_heads, d_model // n_heads)
        self.dropout = dropout
        self.causal = causal
        self.query = nn.Linear(d_model, d_model)
        # A bias of the keys would add the same to all scores of a query: the softmax ignores it.
        self.key = nn.Linear(d_model, d_model, bias_attr=False)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """Mix the tokens of ``x`` (N, T, d_model); ``keep`` (N, 1, 1, T) marks those to be seen."""
        query = self.query(x).unflatten(2, self.heads)
        key = self.key(x).unflatten(2, self.heads)
        value = self.value(x).unflatten(2, self.heads)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=keep,
            dropout_p=self.dropout,
            is_causal=self.causal,
            training=self.training,
        )
        return self.output(mixed.flatten(2))


@final
class Block(nn.Layer):
    """Attention, then two linear layers; each normalises its input and adds to it.

    Pre-norm, see Xiong et al., ICML 2020. Arguments as in `Transformer`.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = SelfAttention(d_model, n_heads, dropout, causal)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            ("hidden", nn.Linear(d_model, d_ff)),
            ("activation", nn.GELU()),
            ("dropout", nn.Dropout(dropout)),
            ("output", nn.Linear(d_ff, d_model)),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """Map (N, T, d_model) to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x), keep))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


@final
class Transformer(nn.Layer):
    """Pre-norm transformer with learned positions.

    Args:
        vocab_size: number of tokens.
        max_length: tokens in the longest sequence.
        out_features: classes, or the size of the vocabulary that a language model foretells.
        d_model: width of the model.
        n_heads: attention heads; divides ``d_model``.
        n_layers: blocks of attention and feed-forward.
        d_ff: width inside the feed-forward layers.
        dropout: share of embeddings, attention weights and branch outputs dropped in training.
        task: ``classification`` (one output a sequence, from the mean over its tokens) or
            ``language_model`` (one output a token, which sees only itself and the tokens before).
        pad_id: the token that pads sequences on the right. Classification does not see it; a
            language model takes it as any other token, which comes too late to matter for those
            before.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_length: int,
        out_features: int,
        d_model: int = 128,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 512,
        dropout: float = 0.1,
        task: str = "classification",
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_transformer(
            vocab_size=vocab_size,
            max_length=max_length,
            out_features=out_features,
            d_model=d_model,
            n_heads=n_heads,
            n_layers=n_layers,
            d_ff=d_ff,
            dropout=dropout,
            task=task,
            pad_id=pad_id,
        )
        self.max_length = max_length
        self.pad_id = pad_id
        self.causal = task == "language_model"
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.LayerList(
            [Block(d_model, n_heads, d_ff, dropout, self.causal) for _ in range(n_layers)]
        )
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, out_features)

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path)."""
        initialize(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (N, T) to (N, out_features), in a language model to (N, T, out_features)."""
        length = x.shape[1]
        check_length(length, self.max_length)
        hidden = self.dropout(self.tokens(x) + self.positions.weight[:length])
        if self.causal:
            return self.output(self.norm(self._encode(hidden, None)))
        real = x != self.pad_id
        # A softmax over nothing is NaN: a sequence of padding alone sees itself, and pools to 0.
        keep = real | ~real.any(axis=1, keepdim=True)
        hidden = self.norm(self._encode(hidden, keep[:, None, None, :]))
        total = hidden.masked_fill(~real.unsqueeze(2), 0.0).sum(axis=1)
        return self.output(total / real.sum(axis=1, keepdim=True).clip(min=1).astype(total.dtype))

    def _encode(self, hidden: Tensor, keep: Tensor | None) -> Tensor:
        for block in self.blocks:
            hidden = block(hidden, keep)
        return hidden
