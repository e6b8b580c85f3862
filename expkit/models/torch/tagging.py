"""What taggers for PyTorch begin and end with."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name everybody knows it by

from expkit.models.torch.crf import LinearChainCrf, at_least_float32
from expkit.models.validation import check_ngrams


@final
class TokenEmbedding(nn.Module):
    """A vector for each token: its own, plus the mean of those of its n-grams.

    N-grams tell something of words that training never met (Bojanowski et al., TACL 2017).

    Args:
        vocab_size: number of tokens.
        ngram_vocab_size: number of n-grams; 0 = tokens have a vector of their own only.
        dim: numbers in a vector.
        pad_id: the token, and the n-gram, that stands for none.
    """

    def __init__(self, vocab_size: int, ngram_vocab_size: int, dim: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.tokens = nn.Embedding(vocab_size, dim, padding_idx=pad_id)
        self.ngrams = (
            nn.Embedding(ngram_vocab_size, dim, padding_idx=pad_id) if ngram_vocab_size else None
        )

    def clear_padding(self) -> None:
        """Make the vectors of padding 0, which they stay."""
        with torch.no_grad():
            self.tokens.weight[self.pad_id] = 0.0
            if self.ngrams is not None:
                self.ngrams.weight[self.pad_id] = 0.0

    def forward(self, x: Tensor, ngrams: Tensor | None) -> Tensor:
        """Map tokens (N, T) and their n-grams (N, T, L) to (N, T, dim)."""
        if self.ngrams is None:
            return self.tokens(x)
        ngrams = check_ngrams(x, ngrams)
        count = (ngrams != self.pad_id).sum(2, keepdim=True).clamp(min=1)
        return self.tokens(x) + self.ngrams(ngrams).sum(2) / count


@final
class TagOutput(nn.Module):
    """Tags from vectors: their loss where the right ones are known, and in evaluation the tags.

    Args:
        in_features: numbers in a token's vector.
        num_tags: number of tags.
        crf: judge whole sequences, by a `LinearChainCrf`; else each token on its own.
    """

    def __init__(self, in_features: int, num_tags: int, crf: bool) -> None:
        super().__init__()
        self.scores = nn.Linear(in_features, num_tags)
        self.crf = LinearChainCrf(num_tags) if crf else None

    def forward(self, hidden: Tensor, keep: Tensor, tags: Tensor | None) -> dict[str, Tensor]:
        """What a tagger returns.

        Args:
            hidden: a vector for each token, (N, T, in_features).
            keep: marks the tokens, (N, T).
            tags: the right tags, -1 where there is none, (N, T); None where nobody knows them.

        Returns:
            With ``tags`` the ``loss`` and ``loss_weight``: in each sequence the mean loss of its
            tagged tokens and their number, (N,); without a CRF the loss of each token and whether
            it counts, (N, T). In evaluation ``output``, the tags, -1 at padding, (N, T).
        """
        scores = at_least_float32(self.scores(hidden))
        outputs = {} if tags is None else self._loss(scores, keep, tags)
        if not self.training:
            if self.crf is None:
                unknown = ~keep | scores.isnan().any(2)
                outputs["output"] = scores.argmax(2).masked_fill(unknown, -1)
            else:
                outputs["output"] = self.crf.decode(scores, keep)
        return outputs

    def _loss(self, scores: Tensor, keep: Tensor, tags: Tensor) -> dict[str, Tensor]:
        tagged = (keep & (tags != -1)).float()
        if self.crf is None:
            right = tags.masked_fill(~keep, -1)
            loss = F.cross_entropy(scores.mT, right, ignore_index=-1, reduction="none")
            return {"loss": loss, "loss_weight": tagged}
        count = tagged.sum(1)
        # A sequence without tags has the loss 0 and the weight 0; 0 / 0 would spread a NaN.
        return {"loss": self.crf(scores, keep, tags) / count.clamp(min=1), "loss_weight": count}
