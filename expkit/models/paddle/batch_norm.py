"""Batch normalisation that keeps the same statistics as PyTorch's."""

from __future__ import annotations

import math
from typing import final

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F  # noqa: N812 - the name everybody knows it by

from expkit.core.errors import DataError

# Paddle's momentum is the weight of the old statistics: PyTorch's is the other 0.1.
_MOMENTUM = 0.9


@final
class BatchNorm(nn.Layer):
    """Batch normalisation over all axes but the second (Ioffe and Szegedy, ICML 2015).

    For evaluation ``paddle.nn.BatchNorm1D`` keeps the biased variance of its batches, and
    ``torch.nn.BatchNorm1d`` the unbiased one, so models trained alike would evaluate differently.
    This layer keeps the unbiased one, under PyTorch's names. Each process keeps the statistics of
    its own batches.

    Args:
        num_features: size of the second axis.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        one = nn.initializer.Constant(1.0)
        self.weight = self.create_parameter([num_features], default_initializer=one)
        self.bias = self.create_parameter([num_features], is_bias=True)
        self.register_buffer("running_mean", paddle.zeros([num_features]))
        self.register_buffer("running_var", paddle.ones([num_features]))
        self.register_buffer("num_batches_tracked", paddle.zeros([], dtype="int64"))

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` (N, num_features, ...)."""
        if not self.training:
            return self._normalize(x, self.running_var)
        count = math.prod(x.shape) // x.shape[1]
        if count < 2:
            raise DataError(
                "batch normalisation in training got a batch with one value per feature; "
                "allowed: at least two (try: data.drop_last=true, or model.norm=none)"
            )
        # Paddle moves this copy towards the biased variance of the batch; the gradient keeps it, so
        # it must not change any more.
        biased = self.running_var.clone()
        normalized = self._normalize(x, biased)
        with paddle.no_grad():
            excess = (biased - self.running_var * _MOMENTUM) / (count - 1)
            # A compiled graph would leave out methods that change a buffer in place.
            paddle.assign(biased + excess, self.running_var)
            paddle.assign(self.num_batches_tracked + 1, self.num_batches_tracked)
        return normalized

    def _normalize(self, x: Tensor, running_var: Tensor) -> Tensor:
        return F.batch_norm(
            x,
            self.running_mean,
            running_var,
            self.weight,
            self.bias,
            training=self.training,
            momentum=_MOMENTUM,
            epsilon=1e-5,
            data_format="NC" if x.ndim == 2 else "NCHW",
        )
