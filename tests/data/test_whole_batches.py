"""Evaluation batches that ranks share out whole: the same ones on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expkit.data import Data


def shared(n, batch_size, world_size, **options):
    """The indices of each rank's batches; of those that only fill up, None."""
    data = Data(None, {"x": np.arange(n)}, eval_batch_size=batch_size)
    loaders = [
        data.eval_loaders(rank=rank, world_size=world_size, whole_batches=True, **options)[""]
        for rank in range(world_size)
    ]
    return [
        [batch.indices.tolist() if batch.size else None for batch in loader.batches()]
        for loader in loaders
    ]


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.booleans())
def test_batches_are_those_of_one_rank(n, batch_size, world_size, in_step):
    ranks = shared(n, batch_size, world_size, in_step=in_step)
    (alone,) = shared(n, batch_size, 1)
    assert [batch for rank in ranks for batch in rank if batch is not None] == alone
    counts = [len(rank) for rank in ranks]
    if in_step:
        assert len(set(counts)) == 1
    else:
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("n", "world_size", "expected"),
    [
        (10, 2, [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9]]]),
        (3, 2, [[[0, 1, 2]], []]),
        (9, 4, [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8]], []]),
    ],
)
def test_ranks_follow_each_other_in_order(n, world_size, expected):
    assert shared(n, 4, world_size) == expected


def test_a_limit_holds_for_each_rank():
    assert shared(100, 4, 2, limit_batches=1) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
