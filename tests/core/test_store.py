from __future__ import annotations

import math

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.core.errors import CheckpointError
from expkit.core.store import MemoryStore, SharedStore


def saved(*scores):
    store = MemoryStore()
    for step, score in enumerate(scores, 1):
        state = {"model": {"w": np.array([step])}, "optimizer": {"m": np.zeros(9)}}
        store.save(state, step=step, epoch=0, metrics={"m": 1.0}, score=score)
    store.wait()
    return store


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.5, 0.3], 2), ([0.5, 0.5], 1), ([math.nan, 0.1, None], 2), ([-3.0, -1.0], 2)],
)
def test_the_weights_of_the_best_are_remembered(scores, best):
    store = saved(*scores)
    state, info = store.load("best")
    assert (info.step, info.path, store.best()) == (best, None, info)
    assert state["model"]["w"].tolist() == [best]


def test_only_the_weights_are_held():
    assert set(saved(0.1).load("best")[0]) == {"model"}


@pytest.mark.parametrize(("scores", "where"), [([], "best"), ([None], "best"), ([0.1], "last")])
def test_what_is_not_there_is_an_error_that_says_why(scores, where):
    store = saved(*scores)
    assert store.last() is None
    with pytest.raises(CheckpointError, match=rf"no checkpoint '{where}'.*checkpoint=default"):
        store.load(where)
    store.close()
    store.close()


def test_other_ranks_leave_the_store_to_rank_0():
    class NoStore:
        is_lasting = needs_copies = True

        def __getattr__(self, name):
            raise AssertionError(name)

    group = SingleProcess()
    group.rank, group.world_size = 1, 2
    SharedStore(NoStore(), group).save({}, step=1, epoch=0, metrics={}, score=None)
    SharedStore(NoStore(), group).wait_alone()


def test_rank_0_shares_its_store():
    store = SharedStore(MemoryStore(), SingleProcess())
    assert store.load_best() is None
    state = {"model": {"w": np.array([1])}}
    store.save(state, step=1, epoch=0, metrics={}, score=0.5)
    store.wait()
    store.wait_alone()
    state, info = store.load_best()
    assert (state["model"]["w"].tolist(), info.step) == ([1], 1)
