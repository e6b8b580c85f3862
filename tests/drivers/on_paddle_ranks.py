"""What ranks do in the tests of what only Paddle has."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from unittest import mock

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet

from expkit.core.errors import DriverError, RankError
from expkit.optimizers import SGD
from tests.drivers import factories_paddle as fw
from tests.drivers.on_ranks import identity, raised


def sparse():
    class Table(nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)

        def forward(self, x):
            return self.table(x).sum(1)

    return raised(lambda: fw.several("flat").prepare(Table(), SGD(lr=1.0), identity), DriverError)


def calls_of_paddle(seconds):
    """When this rank came to each collective, and when it called Paddle's, if it did.

    Rank 0 is busy before each.
    """
    group = fw.several("flat").group
    called = []

    def spy(name):
        real = getattr(dist, name)

        def call(*args, **kwargs):
            called.append(time.monotonic())
            return real(*args, **kwargs)

        return mock.patch.object(dist, name, call)

    calls = {
        "all_reduce": lambda: group.all_reduce(np.ones(1)),
        "all_gather": lambda: group.all_gather(1),
        "broadcast": lambda: group.broadcast(1),
        "call_on_main": lambda: group.call_on_main(lambda: None),
        "broadcast_tensors": lambda: group.broadcast_tensors([paddle.ones([1])]),
    }
    found = {}
    with ExitStack() as stack:
        for name in ("all_reduce", "all_gather_object", "broadcast_object_list", "broadcast"):
            stack.enter_context(spy(name))
        for name, collective in calls.items():
            called.clear()
            if group.rank == 0:
                time.sleep(seconds)
            came = time.monotonic()
            collective()
            found[name] = came, called[:]
    return found


def late(limit_s):
    """Rank 0 does not come in time."""
    group = fw.replicated(timeout_s=limit_s).group
    if group.rank == 0:
        time.sleep(2 * limit_s)
        return None
    return raised(group.barrier, RankError)


def main_leaves():
    """Rank 0, which serves the store, leaves while the others wait."""
    group = fw.several("flat").group
    if group.rank == 0:
        time.sleep(0.3)
        os._exit(7)
    return raised(group.barrier, RankError)


def role_maker():
    """A role maker of the user's is what fleet is started with."""
    maker = fleet.PaddleCloudRoleMaker(is_collective=True)
    driver = fw.replicated(fleet={"role_maker": maker, "is_collective": True})
    return fleet.fleet._role_maker is maker, driver.rank, driver.world_size
