"""A metric is a set of sums: exact whatever the batches and ranks, because sums add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import Collective, ReduceOp

HostArrays = Mapping[str, NDArray[Any]]


class Metric(ABC):
    """Accumulates sums over batches and turns them into one or more numbers.

    A metric of your own: set ``self.state`` to arrays (float64 or int64) in ``reset``, add to them
        in ``update``,
    return numbers in ``compute``. Ranks are reduced by ``reduce_ops`` (a sum where nothing is
    said).

    Attributes:
        needs: names of the arrays that ``update`` reads from ``outputs`` (model outputs, and
            ``loss``); only these are copied to the host.
        state: the accumulated arrays by name.
        reduce_ops: how the state is reduced over ranks, by name: ``sum`` (default), ``min`` or
            ``max``.
    """

    needs: tuple[str, ...] = ("output",)
    reduce_ops: Mapping[str, ReduceOp] = {}
    state: dict[str, NDArray[Any]]

    @abstractmethod
    def reset(self) -> None:
        """Set ``self.state`` to its empty value."""

    @abstractmethod
    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Add one batch.

        Args:
            outputs: the arrays named by ``needs``; first axis = samples.
            fields: the batch as it came from the data set.
            weights: one per sample, 0 for padding; None when each counts 1.
        """

    @abstractmethod
    def compute(self) -> Mapping[str, float]:
        """Numbers by name.

        The name ``""`` stands for the metric's own name in the config, ``"x"`` for ``name/x``.
        """


class MetricGroup(Protocol):
    """All metrics of an evaluation as one (`expkit.metrics.MetricSet`)."""

    @property
    def needs(self) -> frozenset[str]:
        """The outputs that any of them reads."""

    def join(self, group: Collective) -> None:
        """Learn, before the first update, which ranks will reduce together."""

    def reset(self) -> None:
        """Forget all samples."""

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Add one batch, see `Metric.update`."""

    def reduce(self, group: Collective) -> None:
        """Give each rank the state of all ranks together."""

    def compute(self) -> dict[str, float]:
        """All numbers by name."""


class NoMetrics:
    """The group without a metric: an evaluation that gives the loss alone."""

    needs: frozenset[str] = frozenset()

    def join(self, group: Collective) -> None:
        """Nobody to know."""

    def reset(self) -> None:
        """Nothing to forget."""

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Nothing to add."""

    def reduce(self, group: Collective) -> None:
        """Nothing to share."""

    def compute(self) -> dict[str, float]:
        """Nothing."""
        return {}
