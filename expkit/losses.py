"""Losses as specs: what is computed, checked on the host; drivers make functions of them.

A loss gives one value per sample and never a mean: sums and weights travel, so that accumulation,
short batches and ranks are exact. The drivers' side is
`expkit.drivers.<framework>.losses.loss_function`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import DataError
from expkit.core.predicted import most_likely, without_last_axis, yes_or_no
from expkit.loss import Loss, first_wrong, is_number, refused, unknown_loss

__all__ = [
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Regression",
    "unknown_loss",
]


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross entropy of integer labels under the softmax of logits.

    Logits (N, C) go with labels (N,); logits (N, ..., C) with labels (N, ...), the classes always
    last. Without ``class_weights`` and ``ignore_index`` the positions of a sample are averaged:
    each sample has as many. With one of them each position has its own weight, and the mean is
    sum(weight * value) / sum(weight).

    Attributes:
        label_smoothing: share s of the target mass spread evenly over all classes: (1 - s) * nll +
            s * mean_c(-log p_c) (Szegedy et al. 2016).
        class_weights: one weight per class; a position counts with the weight of its label.
        ignore_index: label of positions that do not count; None = all count.
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None
    ignore_index: int | None = None

    def _validate(self) -> None:
        if not is_number(self.label_smoothing) or not 0 <= self.label_smoothing < 1:
            allowed = "a number from 0 to less than 1"
            raise refused(
                "label_smoothing", self.label_smoothing, allowed, "loss.label_smoothing=0.1"
            )
        if self.ignore_index is not None and type(self.ignore_index) is not int:
            allowed = "an integer, or null where every label counts"
            raise refused("ignore_index", self.ignore_index, allowed, "loss.ignore_index=-100")
        if self.class_weights is not None:
            object.__setattr__(self, "class_weights", _class_weights(self.class_weights))

    def check(self, targets: NDArray[Any], output_shape: tuple[int, ...]) -> None:
        """See `Loss.check`."""
        targets = np.asarray(targets)
        if targets.dtype.kind not in "iu":
            raise self.not_integer(targets.dtype)
        if len(output_shape) < 2 or tuple(targets.shape[1:]) != tuple(output_shape[1:-1]):
            raise self.mismatch(
                output_shape, targets.shape, "logits (N, ..., C) with labels (N, ...)"
            )
        classes = output_shape[-1]
        if self.class_weights is not None and len(self.class_weights) != classes:
            raise DataError(
                f"loss.class_weights has {len(self.class_weights)} weights, but output "
                f"{self.output!r} has {classes} classes; give {classes} weights, or none: "
                "loss.class_weights=null"
            )
        wrong = (targets < 0) | (targets >= classes)
        if self.ignore_index is not None:
            wrong &= targets != self.ignore_index
        if wrong.any():
            ignored = (
                "" if self.ignore_index is None else f", or {self.ignore_index} (loss.ignore_index)"
            )
            raise DataError(
                f"field {self.target!r} holds the label {first_wrong(targets, wrong)}; allowed: "
                f"0 to {classes - 1}{ignored}, for output {self.output!r} has {classes} classes; "
                "mend the labels, or give the model more outputs"
            )

    def predictions(
        self, output: NDArray[Any], target: NDArray[Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """``label`` and its ``probability``; see `Loss.predictions`."""
        found = most_likely(output)
        if self.ignore_index is None or target is None or target.ndim < 2:
            return found
        if target.shape != found["label"].shape:
            return found
        ignored = target == self.ignore_index
        return {name: np.ma.masked_array(each, ignored) for name, each in found.items()}


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Cross entropy of targets in [0, 1] under the sigmoid of logits.

    max(x, 0) - x * y + log(1 + exp(-abs(x))), the form that never overflows; several outputs of a
    sample are averaged.
    """

    def _validate(self) -> None:
        """The names are all there is."""

    def check(self, targets: NDArray[Any], output_shape: tuple[int, ...]) -> None:
        """See `Loss.check`."""
        targets = self.numbers(targets, output_shape, kinds="biuf")
        wrong = (targets < 0) | (targets > 1) if targets.dtype.kind != "b" else np.zeros(1, bool)
        if wrong.any():
            raise DataError(
                f"field {self.target!r} holds {first_wrong(targets, wrong)}; binary cross entropy "
                "allows 0 to 1; for more than two classes: loss=cross_entropy"
            )

    def predictions(
        self,
        output: NDArray[Any],
        target: NDArray[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """``label``, 0 or 1, and the ``probability`` of 1; see `Loss.predictions`."""
        return yes_or_no(output)


@dataclass(frozen=True)
class Regression(Loss):
    """Base of the losses over real numbers."""

    def check(self, targets: NDArray[Any], output_shape: tuple[int, ...]) -> None:
        """See `Loss.check`."""
        self.numbers(targets, output_shape)

    def predictions(
        self,
        output: NDArray[Any],
        target: NDArray[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """``value``; see `Loss.predictions`."""
        return {"value": without_last_axis(output)}


@dataclass(frozen=True)
class MeanSquaredError(Regression):
    """(output - target) ** 2; several outputs of a sample are averaged."""

    def _validate(self) -> None:
        """The names are all there is."""


@dataclass(frozen=True)
class MeanAbsoluteError(Regression):
    """abs(output - target); several outputs of a sample are averaged."""

    def _validate(self) -> None:
        """The names are all there is."""


@dataclass(frozen=True)
class Huber(Regression):
    """Squared near the target, absolute far from it (Huber 1964).

    d ** 2 / 2 where abs(d) <= delta, else delta * (abs(d) - delta / 2), with d = output - target;
    several outputs of a sample are averaged.

    Attributes:
        delta: where the two parts meet.
    """

    delta: float = 1.0

    def _validate(self) -> None:
        if not is_number(self.delta) or self.delta <= 0:
            raise refused("delta", self.delta, "a number greater than 0", "loss.delta=1.0")


def _class_weights(weights: object) -> tuple[float, ...]:
    allowed = "a list of finite numbers, none below 0 and not all 0, or null"
    if isinstance(weights, Iterable) and not isinstance(weights, str):
        values = tuple(weights)
        if all(is_number(value) and value >= 0 for value in values) and any(values):
            return tuple(float(value) for value in values)
    raise refused("class_weights", weights, allowed, "loss.class_weights=null")
