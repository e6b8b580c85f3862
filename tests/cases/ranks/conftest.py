"""Ranks that live as long as the tests of this directory need them."""

from __future__ import annotations

import importlib.util

import pytest

from expkit.testing import RankPool
from expkit.testing.wire import encode


class Ranks:
    """Runs functions of ``on_rank`` on all ranks of a driver's framework."""

    def __init__(self, pool: RankPool) -> None:
        self.pool = pool
        self.framework = pool.framework

    def run(self, function, **kwargs):
        """The results of ``module.function(framework, ...)`` by rank."""
        if self.pool.is_broken:
            self.pool.restart()
        module, _, name = function.partition(".")
        return self.pool.run(
            f"tests.cases.ranks.on_rank.{module}:{name}", framework=self.framework, **kwargs
        )

    def agree(self, function, **kwargs):
        """The result, which is the same on all ranks to the last bit."""
        first, *others = self.run(function, **kwargs)
        for rank, other in enumerate(others, 1):
            assert encode(other) == encode(first), f"rank {rank} has {other}, rank 0 {first}"
        return first


def ranks_of(framework, world_size):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    with RankPool(framework, world_size) as pool:
        yield Ranks(pool)


@pytest.fixture(scope="package", params=["torch", "paddle"])
def two(request):
    """Two ranks of each framework."""
    yield from ranks_of(request.param, 2)


@pytest.fixture(scope="package")
def three(two):
    """Three ranks of the same framework."""
    yield from ranks_of(two.framework, 3)


@pytest.fixture(scope="module")
def four(two):
    """Four ranks of the same framework."""
    yield from ranks_of(two.framework, 4)
