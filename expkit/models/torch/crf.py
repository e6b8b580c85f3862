"""Linear-chain conditional random field for PyTorch."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name everybody knows it by


@final
class LinearChainCrf(nn.Module):
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
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # from, to
        self.end = nn.Parameter(torch.zeros(num_tags))

    @torch.compiler.disable  # which would unroll the loop over tokens for each length anew
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
        right = F.one_hot(tags.masked_fill(~known, 0), scores.shape[2]).bool()
        wrong = known.unsqueeze(2) & ~right
        with torch.autocast(scores.device.type, enabled=False):
            scores = at_least_float32(scores)
            pair = torch.cat([scores, scores.masked_fill(wrong, -math.inf)])
            total, likely = self._log_partition(pair, torch.cat([keep, keep])).chunk(2)
        return (total - likely).masked_fill(~keep.any(1), 0.0)

    def _log_partition(self, scores: Tensor, keep: Tensor) -> Tensor:
        """The logarithm of the sum over all sequences of tags of exp(score), (N,)."""
        if (missing := 2 - scores.shape[1]) > 0:  # so that transitions always get a gradient
            scores, keep = F.pad(scores, (0, 0, 0, missing)), F.pad(keep, (0, missing))
        start, transitions, end = self._weights(scores.dtype)
        greatest = transitions.detach().max()
        factors = (transitions - greatest).exp()
        smallest = torch.finfo(scores.dtype).tiny
        first, *rest = scores.unbind(1)
        logs = start + first
        for t, present in enumerate(rest, 1):
            peak = logs.detach().amax(1, keepdim=True)
            sums = ((logs - peak).exp() @ factors).clamp(min=smallest)
            logs = torch.where(keep[:, t, None], sums.log() + (peak + greatest) + present, logs)
        return (logs + end).logsumexp(1)

    @torch.compiler.disable
    @torch.no_grad()
    def decode(self, scores: Tensor, keep: Tensor) -> Tensor:
        """The likeliest tags of each sequence, (N, T); arguments as in `forward`.

        -1 at padding, and in a sequence whose scores hold a NaN, of which no tags are likeliest.
        """
        if not scores.shape[1]:
            return keep.long()
        scores = at_least_float32(scores)
        start, transitions, end = self._weights(scores.dtype)
        first, *rest = scores.unbind(1)
        best = [start + first]
        for t, present in enumerate(rest, 1):
            reached = (best[-1].unsqueeze(2) + transitions).amax(1)
            best.append(torch.where(keep[:, t, None], reached + present, best[-1]))
        # Which tag each best one came from is asked only along the way back: C in place of C * C.
        reached = best[-1] + end
        tags = [reached.argmax(1)]
        for t in range(len(rest), 0, -1):
            origin = (best[t - 1] + transitions.T[tags[-1]]).argmax(1)
            tags.append(torch.where(keep[:, t], origin, tags[-1]))
        return torch.stack(tags[::-1], 1).masked_fill(
            ~keep | reached.isnan().any(1, keepdim=True), -1
        )

    def _weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        return self.start.to(dtype), self.transitions.to(dtype), self.end.to(dtype)


def at_least_float32(scores: Tensor) -> Tensor:
    """The scores themselves, or those of half precision as float32."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
