"""Reading: from indices to the fields of a batch, in this process or in others."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch, Indices, listed
from expkit.core.errors import DataError, ExpkitError
from expkit.data.collate import unmasked
from expkit.data.dataset import Dataset, draws
from expkit.data.randomness import Habits, seeds_at


class Request(NamedTuple):
    """A batch to be read.

    Attributes:
        indices: of the samples in the data set.
        seeds: of the samples, see `expkit.data.randomness`.
        weights: of the samples, see `expkit.core.batch.Batch`.
        window_weight: of the window that ends with this batch; None where none does.
    """

    indices: Indices
    seeds: Indices
    weights: NDArray[np.float32] | None = None
    window_weight: float | None = None

    def batch(self, fields: Mapping[str, Any]) -> Batch:
        """The batch whose fields have been read."""
        return Batch(fields, self.indices, self.weights)


class Reader(ABC):
    """Reads the samples of one data set."""

    @abstractmethod
    def read(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Mapping[str, Any]]]:
        """The fields of each batch, in order; requests may be taken before it is their turn.

        Raises:
            DataError: when it is the turn of a batch that cannot be read.
        """


@final
class OwnReader(Reader):
    """Reads in this process, each batch when it is its turn.

    Args:
        dataset: where the samples come from.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._habits = Habits()

    def read(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Mapping[str, Any]]]:
        """The fields of each batch, in order."""
        for request in requests:
            yield request, read(self._dataset, request.indices, request.seeds, self._habits)


def read(
    dataset: Dataset,
    indices: Indices,
    seeds: Indices | None = None,
    habits: Habits | None = None,
) -> Mapping[str, Any]:
    """The fields of some samples.

    Args:
        dataset: where they come from.
        indices: of the samples.
        seeds: of the samples; None, where they are neither trained nor evaluated = by their index.
        habits: what is known of the data set from earlier reading, and kept up.

    Raises:
        DataError: they cannot be read, or are no batch.
    """
    try:
        if draws(dataset):
            seeds = seeds_at(0, indices) if seeds is None else seeds
            fields = (habits or Habits()).read(lambda: dataset.fetch(indices), seeds)
        else:
            fields = dataset.fetch(indices)
    except ExpkitError:
        raise
    except Exception as error:
        message = f"samples {listed(indices)} cannot be read: {type(error).__name__}: {error}"
        raise DataError(message) from error
    if not isinstance(fields, Mapping):
        raise DataError(
            f"the data set gave a {type(fields).__name__} for a batch; allowed: a dict of arrays"
        )
    for name, value in fields.items():
        _check_rows(value, len(indices), str(name))
    return fields


def _check_rows(value: Any, size: int, path: str) -> None:
    """Make sure that a field has a row for each sample, whatever it is nested in.

    A list holds something of each sample, or parts that have rows themselves.

    Raises:
        DataError: it has not.
    """
    if isinstance(value, np.ndarray) or len(getattr(value, "shape", ())):
        unmasked(value, f"field {path!r}")
        if len(value.shape) == 0 or len(value) != size:
            raise DataError(
                f"field {path!r} has shape {tuple(value.shape)} for {size} samples; allowed: the "
                "sample as first axis"
            )
        return
    parts = _parts_of(value)
    if isinstance(value, list):
        if len(value) == size:
            return
        if not value or not all(map(_has_parts, value)):
            raise DataError(
                f"field {path!r} is a list of {len(value)} for {size} samples; allowed: one entry "
                "for each sample"
            )
    for name, part in parts:
        _check_rows(part, size, f"{path}.{name}")


def _has_parts(value: Any) -> bool:
    return isinstance(value, np.ndarray | Mapping | tuple | list) or hasattr(value, "shape")


def _parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value).items() if hasattr(value, "__dict__") else ()
    return ()
