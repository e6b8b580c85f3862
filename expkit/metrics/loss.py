"""The mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.metric import HostArrays
from expkit.metrics.mean import MeanMetric


class MeanLoss(MeanMetric):
    """The mean loss over samples, or over tokens where the loss counts tokens.

    Reads ``loss``, and ``loss_weight`` where it is there: then ``loss`` is each sample's sum over
    its tokens. NaN over no samples.
    """

    needs = ("loss",)

    def terms(
        self,
        outputs: HostArrays,
        fields: Mapping[str, Any],  # noqa: ARG002 - the loss has seen them
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The loss of each sample and what it counts."""
        return loss_terms(outputs)

    def result(self, mean: float) -> float:
        """The mean itself."""
        return mean


class Perplexity(MeanMetric):
    """exp(mean loss per token): how many equally likely tokens the model hesitates between.

    The loss must be a cross entropy in nats. NaN over no samples.
    """

    needs = ("loss",)

    def terms(
        self,
        outputs: HostArrays,
        fields: Mapping[str, Any],  # noqa: ARG002 - the loss has seen them
    ) -> tuple[NDArray[Any], NDArray[Any] | float]:
        """The loss of each sample and its tokens."""
        return loss_terms(outputs)

    def result(self, mean: float) -> float:
        """exp(mean); infinite where that is beyond float64."""
        with np.errstate(over="ignore"):
            return float(np.exp(mean))


def loss_terms(outputs: HostArrays) -> tuple[NDArray[Any], NDArray[Any] | float]:
    """Sum of the losses of each sample in float64, and their weight."""
    losses = np.asarray(outputs["loss"], dtype=np.float64)
    return losses, np.asarray(outputs["loss_weight"]) if "loss_weight" in outputs else 1.0
