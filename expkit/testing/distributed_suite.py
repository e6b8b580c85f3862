"""The contract of a driver with several ranks as tests."""

from __future__ import annotations

from expkit.testing.facts.rank_collectives import RankCollectiveFacts
from expkit.testing.facts.rank_gradients import RankGradientFacts
from expkit.testing.facts.rank_state import RankStateFacts


class DistributedSuite(RankGradientFacts, RankStateFacts, RankCollectiveFacts):
    """Facts that hold on every driver of several ranks.

    A subclass whose name begins with ``Test`` says which framework's variables tell a process its
    rank, how many ranks there are, and by which functions each makes its driver and its model. The
    ranks are real processes, which live from one fact to the next, and from one class to the next
    where it has as many of them.

    What ranks do together is compared with sums that NumPy makes, and with a driver of one process
    that passes `DriverSuite`.

    Example:
        In ``test_my_driver.py``::

            from expkit.testing import DistributedSuite

            class TestMyDriverOnTwoRanks(DistributedSuite):
                framework = "torch"
                world_size = 2
                driver_factory = "my_factories:make_driver"
                single_factory = "my_factories:make_single_driver"
                model_factory = "my_factories:make_model"

        with ``make_driver(**options)`` and ``make_model(*, dropout, norm, hidden)`` as in
        `DriverSuite`, in a module that can be imported where the tests are.
    """
