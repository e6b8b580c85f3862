"""What every loss has: its names, and the checks of targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem


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
                raise refused(option, name, "a name", f"loss.{option}={example}")
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

    def numbers(
        self, targets: NDArray[Any], output_shape: tuple[int, ...], kinds: str = "iuf"
    ) -> NDArray[Any]:
        """The targets as an array of finite real numbers that fit the output.

        Args:
            targets: see `check`.
            output_shape: see `check`.
            kinds: NumPy's letters for the types that are allowed.

        Raises:
            DataError: they are not such numbers.
        """
        targets = np.asarray(targets)
        if targets.dtype.kind not in kinds:
            raise DataError(
                f"field {self.target!r} is of type {targets.dtype}; {type(self).__name__} allows "
                "numbers such as float32; convert it in the data source"
            )
        # Shapes alone decide: an empty array of the output's shape per sample stands for it.
        self.align(np.empty((0, *output_shape[1:])), np.empty((0, *targets.shape[1:])))
        if targets.dtype.kind == "f":
            wrong = ~np.isfinite(targets)
            if wrong.any():
                raise DataError(
                    f"field {self.target!r} holds {first_wrong(targets, wrong)}; allowed: "
                    "finite numbers"
                )
        return targets


def unknown_loss(spec: object) -> ConfigError:
    """The error for a spec that a driver has no function for."""
    message = (
        f"is {type(spec).__name__}; allowed: CrossEntropy, BinaryCrossEntropy, MeanSquaredError, "
        "MeanAbsoluteError, Huber, or a callable (outputs, batch) -> loss"
    )
    return ConfigError([Problem("loss", message, "loss=cross_entropy")])


def first_wrong(targets: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    """``value at position`` of the first offender; the first axis of a position is the sample."""
    position = np.unravel_index(int(wrong.argmax()), wrong.shape)
    place = tuple(int(axis) for axis in position)
    return f"{targets[position]} at position {place[0] if len(place) == 1 else place}"


def is_number(value: object) -> bool:
    """Whether an option is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def refused(option: str, value: object, allowed: str, hint: str) -> ConfigError:
    """The error for an option that means nothing."""
    return ConfigError([Problem(f"loss.{option}", f"is {value!r}; allowed: {allowed}", hint)])
