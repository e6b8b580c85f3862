"""Linear-chain conditional random field for Paddle."""

from __future__ import annotations

import math
from typing import final

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F  # noqa: N812 - the name everybody knows it by

_LEAST = -80.0
"""Logarithm of the smallest ratio of probabilities that counts."""


@final
@paddle.jit.marker.force_dynamic  # a static graph has no loop over lengths that change
class LinearChainCrf(nn.Layer):
    """Scores sequences of tags: each tag at its place, and each pair of neighbours.

    Source: Lafferty et al., ICML 2001; the forward algorithm and Viterbi's as in Rabiner,
    Proceedings of the IEEE, 1989. Both are computed in float32 at least, whatever comes in.

    The forward algorithm adds up logarithms as a matrix product of exponentials, each relative to
    the greatest. It is as exact as its numbers where transitions differ by less than 60.

    Args:
        num_tags: number of tags.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        zero = nn.initializer.Constant(0.0)
        self.start = self.create_parameter([num_tags], default_initializer=zero)
        pairs = [num_tags, num_tags]  # from, to
        self.transitions = self.create_parameter(pairs, default_initializer=zero)
        self.end = self.create_parameter([num_tags], default_initializer=zero)

    def forward(self, scores: Tensor, keep: Tensor, tags: Tensor) -> Tensor:
        """The negative log-likelihood of each sequence, (N,).

        Where a tag is not known all are right (Tsuboi et al., COLING 2008). So a sequence without
        known tags, or without tokens, has a loss of 0.

        Args:
            scores: of each tag at each place, (N, T, num_tags).
            keep: marks tokens, which padding only follows, (N, T).
            tags: the right tag at each place, -1 where it is not known, (N, T).
        """
        known = keep & (tags != -1)
        right = F.one_hot(tags.masked_fill(~known, 0), scores.shape[2]).astype("bool")
        wrong = known.unsqueeze(2) & ~right
        with paddle.amp.auto_cast(enable=False):
            scores = at_least_float32(scores)
            pair = paddle.concat([scores, scores.masked_fill(wrong, -math.inf)])
            total, likely = self._log_partition(pair, paddle.concat([keep, keep])).chunk(2)
        return (total - likely).masked_fill(~keep.any(1), 0.0)

    def _log_partition(self, scores: Tensor, keep: Tensor) -> Tensor:
        """The logarithm of the sum over all sequences of tags of exp(score), (N,)."""
        if (missing := 2 - scores.shape[1]) > 0:  # so that transitions always get a gradient
            padding = paddle.zeros([len(keep), missing], "bool")
            scores, keep = F.pad(scores, [0, 0, 0, missing]), paddle.concat([keep, padding], 1)
        start, transitions, end = self._weights(scores.dtype)
        greatest = transitions.detach().max()
        factors = (transitions - greatest).exp()
        smallest = float(paddle.finfo(scores.dtype).tiny)
        first, *rest = scores.unbind(1)
        logs = start + first
        for t, present in enumerate(rest, 1):
            peak = logs.detach().max(1, keepdim=True)
            ratios = logs - peak
            # Paddle's exp never is 0, and numbers as small as it gives slow the product down.
            shares = ratios.exp() * (ratios > _LEAST).astype(ratios.dtype)
            sums = (shares @ factors).clip(min=smallest)
            logs = paddle.where(keep[:, t, None], sums.log() + (peak + greatest) + present, logs)
        return (logs + end).logsumexp(1)

    @paddle.no_grad()
    def decode(self, scores: Tensor, keep: Tensor) -> Tensor:
        """The likeliest tags of each sequence, (N, T); arguments as in `forward`.

        -1 at padding, and in a sequence whose scores hold a NaN, of which no tags are likeliest.
        """
        if not scores.shape[1]:
            return keep.astype("int64")
        scores = at_least_float32(scores)
        start, transitions, end = self._weights(scores.dtype)
        first, *rest = scores.unbind(1)
        best = [start + first]
        for t, present in enumerate(rest, 1):
            # Expanded here because Paddle's sum does it more slowly.
            earlier = best[-1].unsqueeze(2).expand([-1, -1, scores.shape[2]])
            reached = (earlier + transitions).max(1)
            best.append(paddle.where(keep[:, t, None], reached + present, best[-1]))
        # Which tag each best one came from is asked only along the way back: C in place of C * C.
        reached = best[-1] + end
        tags = [reached.argmax(1)]
        for t in range(len(rest), 0, -1):
            origin = (best[t - 1] + transitions.T[tags[-1]]).argmax(1)
            tags.append(paddle.where(keep[:, t], origin, tags[-1]))
        return paddle.stack(tags[::-1], 1).masked_fill(
            ~keep | reached.isnan().any(1, keepdim=True), -1
        )

    def _weights(self, dtype: paddle.dtype) -> tuple[Tensor, Tensor, Tensor]:
        return self.start.astype(dtype), self.transitions.astype(dtype), self.end.astype(dtype)


def at_least_float32(scores: Tensor) -> Tensor:
    """The scores themselves, or those of half precision as float32."""
    return scores if scores.dtype == paddle.float64 else scores.astype("float32")
