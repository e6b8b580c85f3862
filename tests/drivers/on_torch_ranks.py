"""What ranks do in the tests of what only torch has."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from torch import nn

from expkit.core.batch import Batch
from expkit.core.errors import ConfigError, DriverError, RankError
from expkit.optimizers import SGD
from expkit.testing.steps import step
from tests.drivers import factories_torch as fw
from tests.drivers.on_ranks import constant, identity, on_constant, one_step, raised, samples


def sparse(sync):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)
            nn.init.zeros_(self.table.weight)

        def forward(self, x):
            return self.table(x).sum(1)

    driver = fw.several(sync)
    driver.prepare(Table(), torch.optim.SparseAdam, identity)
    batch = Batch({"x": np.array([driver.rank, 5])}, np.arange(2), None)
    return raised(lambda: step(driver, [batch], weight=4), DriverError)


def static_graph():
    driver = fw.several("native", data_parallel={"static_graph": True})
    driver.prepare(constant(fw), SGD(lr=1.0), identity)
    one_step(driver)
    batches = [samples(1), samples(1)]
    return driver.model_state()["w"].item(), raised(lambda: step(driver, batches), ConfigError)


def backends():
    """Backends that are not the one over which this process has joined, or there is none of."""
    on_constant(fw.several("flat"), fw)
    make = fw.replicated
    return [raised(partial(make, backend=name), ConfigError) for name in ("mpi", "tcp")]


def late(directory, limit_s):
    """Rank 0 does not come in time, in a group that has met over a file."""
    url = f"file://{directory}/rendezvous"
    group = fw.replicated(timeout_s=limit_s, init_method=url).group
    assert group.all_gather(group.rank) == [0, 1]
    if group.rank == 0:
        time.sleep(2 * limit_s)
        return None
    return raised(group.barrier, RankError)
