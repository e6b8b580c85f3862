"""Transformer tagger for Paddle."""

from __future__ import annotations

from typing import final

from paddle import Tensor, nn

from expkit.models.paddle.initialize import initialize
from expkit.models.paddle.tagging import TagOutput, TokenEmbedding
from expkit.models.paddle.transformer import Block
from expkit.models.validation import check_length, check_transformer_tagger


@final
class TransformerTagger(nn.Layer):
    """A tag for each token, by a pre-norm transformer and a conditional random field.

    The encoder of `Transformer`, with learned positions.

    Args:
        vocab_size: number of tokens.
        max_length: tokens in the longest sequence.
        out_features: number of tags.
        ngram_vocab_size: number of n-grams in the field ``ngrams``; 0 = it is not read.
        d_model: width of the model.
        n_heads: attention heads; divides ``d_model``.
        n_layers: blocks of attention and feed-forward.
        d_ff: width inside the feed-forward layers.
        dropout: share of embeddings, attention weights and branch outputs dropped in training.
        crf: judge whole sequences of tags; else each tag on its own.
        pad_id: the token that pads sequences on the right, and the n-gram that pads n-grams.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_length: int,
        out_features: int,
        ngram_vocab_size: int = 0,
        d_model: int = 128,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 256,
        dropout: float = 0.2,
        crf: bool = True,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_transformer_tagger(
            vocab_size=vocab_size,
            max_length=max_length,
            out_features=out_features,
            ngram_vocab_size=ngram_vocab_size,
            d_model=d_model,
            n_heads=n_heads,
            n_layers=n_layers,
            d_ff=d_ff,
            dropout=dropout,
            crf=crf,
            pad_id=pad_id,
        )
        self.max_length = max_length
        self.pad_id = pad_id
        self.embedding = TokenEmbedding(vocab_size, ngram_vocab_size, d_model, pad_id)
        self.positions = nn.Embedding(max_length, d_model)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.LayerList(
            [Block(d_model, n_heads, d_ff, dropout, causal=False) for _ in range(n_layers)]
        )
        self.norm = nn.LayerNorm(d_model)
        self.output = TagOutput(d_model, out_features, crf)

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path); the embedding of padding is 0."""
        initialize(self, seed)
        self.embedding.clear_padding()

    def forward(
        self, x: Tensor, y: Tensor | None = None, ngrams: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Tag tokens (N, T), whose n-grams are (N, T, L); see `TagOutput.forward`."""
        length = x.shape[1]
        check_length(length, self.max_length)
        keep = x != self.pad_id
        hidden = self.dropout(self.embedding(x, ngrams) + self.positions.weight[:length])
        # A softmax over nothing is NaN: a sequence of padding alone sees itself.
        seen = (keep | ~keep.any(axis=1, keepdim=True))[:, None, None, :]
        for block in self.blocks:
            hidden = block(hidden, seen)
        outputs: dict[str, Tensor] = self.output(self.norm(hidden), keep, y)
        return outputs
