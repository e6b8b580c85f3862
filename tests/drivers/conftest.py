"""Ranks that live as long as the session, so that their frameworks are imported once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from expkit.testing import RankPool
from expkit.testing.wire import encode


class Ranks:
    """Processes that run functions together: one pool, whose life this keeps track of."""

    def __init__(self, framework, world_size):
        self.pool = RankPool(framework, world_size)
        self.framework = framework
        self._is_used = self._is_spoiled = False

    def ready(self):
        """They join as drivers do, or have done so."""
        return self._after(restart=self._is_spoiled)

    def unjoined(self):
        """They have not called anything, and are left to nobody but who kills them."""
        return self._after(restart=self._is_used, spoils=True)

    def doomed(self):
        """They live, however they have joined, and need not do so at the end."""
        return self._after(restart=False, spoils=True)

    def run(self, function, **kwargs):
        """The results by rank of a function of ``on_ranks``, or ``module.function`` beside it."""
        module, _, name = function.rpartition(".")
        if not module:
            module, kwargs = "on_ranks", {"framework": self.framework, **kwargs}
        # The first call imports a framework.
        return self.pool.run(f"tests.drivers.{module}:{name}", **{"timeout_s": 100.0, **kwargs})

    def agree(self, function, **kwargs):
        """The result, which is the same on all ranks to the last bit."""
        first, *others = self.run(function, **kwargs)
        for rank, other in enumerate(others, 1):
            assert encode(other) == encode(first), f"rank {rank} has {other}, rank 0 {first}"
        return first

    def _after(self, restart, spoils=False):
        if restart or self.pool.is_broken:
            self.pool.restart()
            self._is_spoiled = False
        self._is_used = True
        self._is_spoiled |= spoils
        return self


@pytest.fixture(scope="session")
def all_ranks():
    """Gives ranks by framework and number."""
    found = {}

    def get(framework, world_size):
        key = (framework, world_size)
        if key not in found:
            found[key] = Ranks(framework, world_size)
        return found[key]

    yield get
    with ThreadPoolExecutor() as executor:  # large processes need seconds to end
        list(executor.map(lambda ranks: ranks.pool.close(), found.values()))


@pytest.fixture
def two(all_ranks, framework):
    return all_ranks(framework, 2).ready()


@pytest.fixture
def three(all_ranks, framework):
    return all_ranks(framework, 3).ready()


@pytest.fixture
def unjoined(all_ranks, framework):
    return all_ranks(framework, 2).unjoined()


@pytest.fixture
def doomed(all_ranks, framework):
    return all_ranks(framework, 2).doomed()


def pytest_collection_modifyitems(items):
    """Tests after which ranks must be started anew come last, so that it is done once for each."""
    last = {"unjoined", "doomed"}
    items.sort(key=lambda item: not last.isdisjoint(getattr(item, "fixturenames", ())))
