"""Losses as specs: what is computed, checked on the host; drivers make functions of them.

A loss gives one value per sample and never a mean: sums and weights travel, so that accumulation,
short batches and ranks are exact. The drivers' side is
`expkit.drivers.<framework>.losses.loss_function`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.predicted import most_likely, without_last_axis, yes_or_no


@dataclass(frozen=True)
class Loss(ABC):
    """What every loss has.

    Attributes:
        output: name of the model output that is judged.
        target: name of the batch field that it is judged against.
    """

    output: str = "output"
    target: str = "y"

    def __post_init__(self) -> None:
        for option, example in (("output", "output"), ("target", "y")):
            name = getattr(self, option)
            if not isinstance(name, str) or not name:
                raise _refused(option, name, "a name", f"loss.{option}={example}")
        self._validate()

    @abstractmethod
    def _validate(self) -> None:
        """Refuse options that mean nothing."""

    @abstractmethod
    def check(self, targets: NDArray[Any], output_shape: tuple[int, ...]) -> None:
        """Refuse targets that this loss cannot judge.

        Args:
            targets: the targets of a whole data set, first axis = samples.
            output_shape: shape of the model's output; its first axis may hold any number of
                samples.

        Raises:
            DataError: wrong type, wrong shape or a value out of range; names the first one and what
                is allowed.
        """

    @abstractmethod
    def predictions(
        self, output: NDArray[Any], target: NDArray[Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """What the output of a batch says, by name, for each sample or each position of it.

        Args:
            output: the output that is judged, on the host.
            target: the targets, where there are some; positions that do not count are masked.
        """

    def missing(self, outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> ConfigError:
        """The error for an output or a target that is not there, with the names that are."""
        for option, name, there, what in (
            ("output", self.output, outputs, "the model gave no output"),
            ("target", self.target, fields, "the batch has no field"),
        ):
            if name not in there:
                hint = f"loss.{option}={next(iter(there))}" if there else ""
                message = f"{what} {name!r}; there are: {', '.join(map(str, there)) or 'none'}"
                return ConfigError([Problem(f"loss.{option}", message, hint)])
        raise AssertionError("both the output and the target are there")

    def not_integer(self, dtype: object) -> DataError:
        """The error for class labels of type ``dtype``."""
        return DataError(
            f"field {self.target!r} holds class labels of type {dtype}; allowed: int64, int32, "
            "int16, int8, uint8; convert them in the data source, or take a loss for real "
            "numbers: loss=mse"
        )

    def mismatch(
        self, output_shape: Iterable[int], target_shape: Iterable[int], allowed: str
    ) -> DataError:
        """The error for shapes that do not belong together; nothing is ever broadcast."""
        return DataError(
            f"output {self.output!r} has the shape {tuple(output_shape)} and field {self.target!r} "
            f"the shape {tuple(target_shape)}; allowed: {allowed}"
        )

    def align(self, output: Any, target: Any) -> tuple[Any, Any]:
        """Arrays or tensors of one shape: a last axis of length 1 that only one has is dropped.

        Raises:
            DataError: the shapes differ in any other way.
        """
        left, right = tuple(output.shape), tuple(target.shape)
        if left == right:
            return output, target
        if left == (*right, 1):
            return output.reshape(right), target
        if right == (*left, 1):
            return output, target.reshape(left)
        raise self.mismatch(
            left, right, "equal shapes, or one of them with a last axis of length 1 more"
        )


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
        if not _is_number(self.label_smoothing) or not 0 <= self.label_smoothing < 1:
            allowed = "a number from 0 to less than 1"
            raise _refused(
                "label_smoothing", self.label_smoothing, allowed, "loss.label_smoothing=0.1"
            )
        if self.ignore_index is not None and type(self.ignore_index) is not int:
            allowed = "an integer, or null where every label counts"
            raise _refused("ignore_index", self.ignore_index, allowed, "loss.ignore_index=-100")
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
                f"field {self.target!r} holds the label {_first(targets, wrong)}; allowed: 0 to "
                f"{classes - 1}{ignored}, for output {self.output!r} has {classes} classes; mend "
                "the labels, or give the model more outputs"
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
        targets = _check_numbers(self, targets, output_shape, kinds="biuf")
        wrong = (targets < 0) | (targets > 1) if targets.dtype.kind != "b" else np.zeros(1, bool)
        if wrong.any():
            raise DataError(
                f"field {self.target!r} holds {_first(targets, wrong)}; binary cross entropy "
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
        _check_numbers(self, targets, output_shape)

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
        if not _is_number(self.delta) or self.delta <= 0:
            raise _refused("delta", self.delta, "a number greater than 0", "loss.delta=1.0")


def unknown_loss(spec: object) -> ConfigError:
    """The error for a spec that a driver has no function for."""
    message = (
        f"is {type(spec).__name__}; allowed: CrossEntropy, BinaryCrossEntropy, MeanSquaredError, "
        "MeanAbsoluteError, Huber, or a callable (outputs, batch) -> loss"
    )
    return ConfigError([Problem("loss", message, "loss=cross_entropy")])


def _check_numbers(
    loss: Loss, targets: NDArray[Any], output_shape: tuple[int, ...], kinds: str = "iuf"
) -> NDArray[Any]:
    """The targets as an array of finite real numbers that fit the output."""
    targets = np.asarray(targets)
    if targets.dtype.kind not in kinds:
        raise DataError(
            f"field {loss.target!r} is of type {targets.dtype}; {type(loss).__name__} allows "
            "numbers such as float32; convert it in the data source"
        )
    # Shapes alone decide: an empty array of the output's shape per sample stands for it.
    loss.align(np.empty((0, *output_shape[1:])), np.empty((0, *targets.shape[1:])))
    if targets.dtype.kind == "f":
        wrong = ~np.isfinite(targets)
        if wrong.any():
            raise DataError(
                f"field {loss.target!r} holds {_first(targets, wrong)}; allowed: finite numbers"
            )
    return targets


def _first(targets: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    """``value at position`` of the first offender; the first axis of a position is the sample."""
    position = np.unravel_index(int(wrong.argmax()), wrong.shape)
    place = tuple(int(axis) for axis in position)
    return f"{targets[position]} at position {place[0] if len(place) == 1 else place}"


def _class_weights(weights: object) -> tuple[float, ...]:
    allowed = "a list of finite numbers, none below 0 and not all 0, or null"
    if isinstance(weights, Iterable) and not isinstance(weights, str):
        values = tuple(weights)
        if all(_is_number(value) and value >= 0 for value in values) and any(values):
            return tuple(float(value) for value in values)
    raise _refused("class_weights", weights, allowed, "loss.class_weights=null")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refused(option: str, value: object, allowed: str, hint: str) -> ConfigError:
    return ConfigError([Problem(f"loss.{option}", f"is {value!r}; allowed: {allowed}", hint)])
