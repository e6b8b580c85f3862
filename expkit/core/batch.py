"""What travels from the data to the driver: micro-batches on the host, grouped into windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

_SHOWN = 16


class Batch:
    """The samples that one rank sends through the model at once.

    Attributes:
        fields: name -> array (or nested dict, list, string ...); the first axis of each array is
            the sample.
        indices: data-set index of each sample, in order.
        weights: float32, one per sample, or None when each counts 1. Padding carries 0.
        size: sum of the weights on this rank: how many samples count.
    """

    __slots__ = ("fields", "indices", "size", "weights")

    def __init__(
        self,
        fields: Mapping[str, Any],
        indices: Indices,
        weights: NDArray[np.float32] | None = None,
        size: float | None = None,
    ) -> None:
        self.fields = fields
        self.indices = indices
        self.weights = weights
        if size is None:
            size = float(len(indices) if weights is None else weights.sum(dtype=np.float64))
        self.size = size


@dataclass(slots=True)
class Window:
    """The micro-batches of one optimizer step on this rank.

    Attributes:
        batches: this rank's micro-batches, at least one.
        weight: how many samples count in this step over all ranks and micro-batches; the gradient
            is divided by it.
        ends_epoch: whether it is the last window of an epoch whose length nobody knew before.
    """

    batches: list[Batch]
    weight: float
    ends_epoch: bool = False


class TrainLoader(Protocol):
    """Yields the windows of an epoch from any position: resuming is a seek."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in one epoch; None where the data has no length."""

    @property
    def signature(self) -> dict[str, Any]:
        """What a position in an epoch depends on, as JSON values: order and size of the steps."""

    def windows(self, epoch: int, start: int = 0) -> Iterator[Window]:
        """The windows of epoch ``epoch`` (0-based) from step ``start`` of that epoch on.

        Raises:
            DataError: there is none.
        """

    def state(self) -> dict[str, Any]:
        """What epoch and step do not tell of the position after the last window handed out.

        Arrays and JSON values; empty where epoch and step tell all.
        """

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave on this rank; the next ``windows`` go on from there.

        Without it they begin with what epoch and step tell, if need be by reading what lies before.
        """


class EvalLoader(Protocol):
    """Yields each sample of an evaluation set exactly once over all ranks, in order."""

    def batches(self) -> Iterator[Batch]:
        """This rank's batches, from the beginning; of samples that fill up, the weight is 0."""


def listed(samples: Sequence[int] | Indices) -> str:
    """The indices of a batch as an error shows them: the first of many."""
    shown = ", ".join(map(str, samples[:_SHOWN]))
    return f"[{shown}{', ...' if len(samples) > _SHOWN else ''}]"


def map_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Rebuild nested dicts, lists, tuples and dataclasses with every leaf converted."""
    if isinstance(value, np.ndarray):  # by far the most common leaf
        return convert(value)
    if isinstance(value, Mapping):
        return {key: map_leaves(item, convert) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(item, convert) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_leaves(item, convert) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        changes = {name: map_leaves(getattr(value, name), convert) for name in names}
        return dataclasses.replace(value, **changes)
    return convert(value)
