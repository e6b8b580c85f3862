"""Tests for drivers of one's own: the contract as suites of facts, and ranks to run them on.

A driver's test file subclasses `DriverSuite`, and `DistributedSuite` where it has several ranks;
see there for examples. pytest is needed for the two suites alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from expkit.models.lazy import lazy_exports

if TYPE_CHECKING:
    from expkit.testing.distributed_suite import DistributedSuite
    from expkit.testing.driver_suite import DriverSuite
    from expkit.testing.ranks import RankPool, RanksError

__all__ = ["DistributedSuite", "DriverSuite", "RankPool", "RanksError"]

__getattr__ = lazy_exports(
    __name__,
    {
        "DistributedSuite": "distributed_suite",
        "DriverSuite": "driver_suite",
        "RankPool": "ranks",
        "RanksError": "ranks",
    },
)
