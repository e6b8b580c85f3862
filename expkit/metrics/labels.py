"""Class labels out of scores and batches: one reading for every metric over classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays


def read(
    owner: str, outputs: HostArrays, output: str, fields: Mapping[str, Any], target: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The arrays of an output and a field.

    Args:
        owner: the metric that asks, for the message.
        outputs: arrays by name.
        output: the output's name.
        fields: batch fields by name.
        target: the field's name.

    Raises:
        ConfigError: one of them is not there; names those that are.
    """
    for option, name, there in (("output", output, outputs), ("target", target, fields)):
        if name not in there:
            names = ", ".join(map(str, there)) or "none"
            message = f"{owner} reads the {option} {name!r}; there are: {names}"
            hint = f"metrics.<name>.{option}={next(iter(there))}" if there else ""
            raise ConfigError([Problem("metrics", message, hint)])
    return np.asarray(outputs[output]), np.asarray(fields[target])


@dataclass(frozen=True)
class Labels:
    """The labels of a batch, all arrays of one shape.

    Attributes:
        predicted: what the output says.
        true: what the field says.
        kept: marks the positions that count; None = all.
        unknown: marks those without a predicted label, whatever ``predicted`` holds there: a score
            is NaN. None = no position.
        num_classes: how many classes the scores are of; None where the output holds labels.
    """

    predicted: NDArray[Any]
    true: NDArray[Any]
    kept: NDArray[np.bool_] | None
    unknown: NDArray[np.bool_] | None
    num_classes: int | None


class LabelReader:
    """Reads the predicted and the true label of each position.

    The output may hold scores with the classes last (the first greatest score wins), labels as
    integers (below 0: none, as taggers give at padding and out of NaN), or, with no class axis or
    one of length 1, the logit of class 1 (above 0 is class 1). Scores say how many classes there
    are: a true label beyond them is an error in the data or in the model, and never only a wrong
    prediction.

    Args:
        owner: the metric that asks, for messages.
        output: name of the output.
        target: name of the field with the true labels.
        ignore_index: label of positions that do not count; None = all count.
    """

    def __init__(self, owner: str, output: str, target: str, ignore_index: int | None) -> None:
        self._owner = owner
        self._output = output
        self._target = target
        self._ignore_index = ignore_index

    def compare(self, outputs: HostArrays, fields: Mapping[str, Any]) -> Labels:
        """Predicted and true labels; of the true ones only the type and shape are checked."""
        output, target = read(self._owner, outputs, self._output, fields, self._target)
        self._check_labels(target)
        classes: int | None = 2
        if output.shape[:-1] == target.shape and output.ndim > 1:
            if output.shape[-1] == 1:
                best = output[..., 0]
                predicted = best > 0
            else:
                classes = output.shape[-1]
                predicted = output.argmax(axis=-1)
                # To argmax a NaN is the greatest, so the best score alone tells of all.
                best = np.take_along_axis(output, predicted[..., None], axis=-1)[..., 0]
        elif output.shape == target.shape or (*output.shape, 1) == target.shape:
            target = target.reshape(output.shape)
            best = output
            predicted = output if output.dtype.kind in "iub" else output > 0
            if output.dtype.kind in "iu":
                classes = None  # labels do not say how many there are
        else:
            raise self._misfit(output, target)
        kept = None if self._ignore_index is None else target != self._ignore_index
        unknown = predicted < 0 if classes is None else np.isnan(best)
        return Labels(predicted, target, kept, unknown if unknown.any() else None, classes)

    def check(self, true: NDArray[Any], num_classes: int | None) -> None:
        """Refuse true labels that are none of the classes, given those that count."""
        check_labels(self._owner, self._target, true, num_classes)

    def pairs(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64] | None]:
        """True label, predicted label and weight (None = 1) of each position that counts, flat.

        A position without a predicted label has the weight NaN, which any sum keeps.
        """
        labels = self.compare(outputs, fields)
        true, predicted = labels.true, labels.predicted
        if weights is None and labels.kept is None and labels.unknown is None:
            self.check(true, labels.num_classes)
            return true.ravel().astype(np.int64), predicted.ravel().astype(np.int64), None
        factors = np.ones(len(true)) if weights is None else weights.astype(np.float64)
        factors = np.broadcast_to(factors.reshape(-1, *[1] * (true.ndim - 1)), true.shape)
        kept = factors != 0 if labels.kept is None else labels.kept & (factors != 0)
        if labels.unknown is not None:
            factors = np.where(labels.unknown, np.nan, factors)
            predicted = np.where(labels.unknown, 0, predicted)
        true = true[kept]
        self.check(true, labels.num_classes)
        return true.astype(np.int64), predicted[kept].astype(np.int64), factors[kept]

    def scores(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]:
        """Scores (n, C), true label and weight of each position that counts; C=1 for one logit."""
        output, target = read(self._owner, outputs, self._output, fields, self._target)
        self._check_labels(target)
        if output.ndim < 2 or output.shape[:-1] != target.shape:
            if output.shape != target.shape and (*output.shape, 1) != target.shape:
                raise self._misfit(output, target)
            output, target = output[..., None], target.reshape(output.shape)
        factors = np.ones(len(target)) if weights is None else weights.astype(np.float64)
        factors = np.broadcast_to(factors.reshape(-1, *[1] * (target.ndim - 1)), target.shape)
        kept = factors != 0
        if self._ignore_index is not None:
            kept &= target != self._ignore_index
        return output[kept], target[kept].astype(np.int64), factors[kept]

    def _misfit(self, output: NDArray[Any], target: NDArray[Any]) -> DataError:
        return DataError(
            f"{self._owner}: output {self._output!r} has the shape {output.shape} and field "
            f"{self._target!r} the shape {target.shape}; allowed: scores (N, ..., C) or labels "
            "(N, ...) with labels (N, ...)"
        )

    def _check_labels(self, target: NDArray[Any]) -> None:
        """Refuse real numbers; 0.0 and 1.0 are labels, as binary cross entropy has them."""
        if target.dtype.kind in "iub":
            return
        if target.dtype.kind == "f" and ((target == 0) | (target == 1)).all():
            return
        raise DataError(
            f"{self._owner} compares class labels, but field {self._target!r} is of type "
            f"{target.dtype}; allowed: integers, or 0.0 and 1.0; for real numbers: "
            "metrics=regression"
        )


def check_labels(owner: str, target: str, true: NDArray[Any], classes: int | None) -> None:
    """Refuse true labels that are none of the classes.

    Args:
        owner: the metric that asks, for the message.
        target: name of the field with the labels, for the message.
        true: the labels that count.
        classes: how many classes there are; None = only labels below 0 are wrong.

    Raises:
        DataError: names the label and what is allowed.
    """
    if not true.size:
        return
    least, largest = int(true.min()), int(true.max())
    if least < 0 or (classes is not None and largest >= classes):
        wrong = least if least < 0 else largest
        allowed = "0 and above" if classes is None else f"0 to {classes - 1}"
        raise DataError(
            f"{owner} met the label {wrong} in field {target!r}; allowed: {allowed}; to leave such "
            f"positions out: metrics.<name>.ignore_index={wrong}"
        )


def largest_label(
    owner: str, true: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int | None
) -> int:
    """The greatest label of a batch, -1 for none.

    Raises:
        DataError: a label that is not below ``num_classes``.
    """
    if not true.size:
        return -1
    largest = max(int(true.max()), int(predicted.max()))
    if num_classes is not None and largest >= num_classes:
        raise DataError(
            f"{owner} met the label {largest}; allowed by num_classes={num_classes}: 0 to "
            f"{num_classes - 1}"
        )
    return largest


def check_num_classes(owner: str, num_classes: int | None) -> None:
    """Refuse a number of classes below 1."""
    if num_classes is not None and (type(num_classes) is not int or num_classes < 1):
        allowed = "an integer from 1, or null = as many as occur"
        message = f"num_classes of {owner} is {num_classes!r}; allowed: {allowed}"
        raise ConfigError([Problem("metrics", message, "metrics.<name>.num_classes=null")])
