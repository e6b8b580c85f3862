"""Metrics whose state does not add up."""

from __future__ import annotations

from abc import abstractmethod

from expkit.core.collective import Collective
from expkit.core.metric import Metric


class GatheredMetric(Metric):
    """Base of metrics for which a sum, least or greatest value over ranks is not enough."""

    @abstractmethod
    def reduce(self, group: Collective) -> None:
        """Give this rank what all ranks have seen.

        All ranks call it after their last update, and make the same collective calls in it.
        """
