"""BiLSTM tagger for PyTorch."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from expkit.models.torch.initialize import initialize
from expkit.models.torch.lstm import BiLstm
from expkit.models.torch.tagging import TagOutput, TokenEmbedding
from expkit.models.validation import check_lstm_tagger


@final
class LstmTagger(nn.Module):
    """A tag for each token, by a bidirectional LSTM and a conditional random field.

    Source: Huang et al., arXiv:1508.01991; Lample et al., NAACL 2016.

    Args:
        vocab_size: number of tokens.
        out_features: number of tags.
        ngram_vocab_size: number of n-grams in the field ``ngrams``; 0 = it is not read.
        embedding_dim: numbers in the vector of a token, and of an n-gram.
        hidden: numbers in the state of each direction.
        n_layers: layers of LSTMs.
        dropout: share of what goes into each layer, and out of the last, dropped in training.
        crf: judge whole sequences of tags; else each tag on its own.
        pad_id: the token that pads sequences on the right, and the n-gram that pads n-grams.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        out_features: int,
        ngram_vocab_size: int = 0,
        embedding_dim: int = 100,
        hidden: int = 128,
        n_layers: int = 1,
        dropout: float = 0.5,
        crf: bool = True,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_lstm_tagger(
            vocab_size=vocab_size,
            out_features=out_features,
            ngram_vocab_size=ngram_vocab_size,
            embedding_dim=embedding_dim,
            hidden=hidden,
            n_layers=n_layers,
            dropout=dropout,
            crf=crf,
            pad_id=pad_id,
        )
        self.pad_id = pad_id
        self.embedding = TokenEmbedding(vocab_size, ngram_vocab_size, embedding_dim, pad_id)
        self.encoder = BiLstm(embedding_dim, hidden, n_layers, dropout)
        self.output = TagOutput(2 * hidden, out_features, crf)

    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path); the embedding of padding is 0."""
        initialize(self, seed)
        self.embedding.clear_padding()

    def forward(
        self, x: Tensor, y: Tensor | None = None, ngrams: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Tag tokens (N, T), whose n-grams are (N, T, L); see `TagOutput.forward`."""
        keep = x != self.pad_id
        hidden = self.encoder(self.embedding(x, ngrams), keep)
        outputs: dict[str, Tensor] = self.output(hidden, keep, y)
        return outputs
