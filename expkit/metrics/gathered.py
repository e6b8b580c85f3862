"""Metrics whose state does not add up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from expkit.core.metric import Metric


class GatheredMetric(Metric):
    """Base of metrics for which a sum, least or greatest value over ranks is not enough.

    Each rank's state is brought to all ranks, which merge them alike. Meant for small states.
    """

    @abstractmethod
    def merge(self, states: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Set ``self.state`` to what the states of all ranks, in rank order, make together."""
