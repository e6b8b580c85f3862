from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.errors import DataError
from expkit.data import ArrayDataset, Data, Random, Sampler, Sequential
from expkit.data.plan import Plan, shard

SIZES = st.integers(1, 12)


def integers(n: int) -> ArrayDataset:
    return ArrayDataset({"x": np.arange(n)})


def loaders(n, world_size, *, sampler=None, accumulate=1, **options):
    data = Data(integers(n), sampler=sampler, **options)
    return [
        data.train_loader(rank=rank, world_size=world_size, accumulate=accumulate)
        for rank in range(world_size)
    ]


def counted(windows) -> list[int]:
    """Data-set indices of weight 1, in order."""
    return [
        index
        for window in windows
        for batch in window.batches
        for place, index in enumerate(batch.indices.tolist())
        if batch.weights is None or batch.weights[place] == 1
    ]


def test_101_samples_on_two_ranks_are_51_each():
    even, odd = loaders(101, 2, sampler=Sequential(), batch_size=8)
    seen = [
        [i for w in loader.windows(0) for b in w.batches for i in b.indices.tolist()]
        for loader in (even, odd)
    ]
    assert seen[0] == list(range(0, 101, 2))
    assert seen[1] == [*range(1, 101, 2), 0]
    last = list(odd.windows(0))[-1].batches[-1]
    assert last.weights is not None
    assert last.weights.tolist() == [1.0] * (len(last.indices) - 1) + [0.0]
    assert last.size == len(last.indices) - 1


def test_five_batches_of_two_make_three_windows_and_the_last_has_one():
    (loader,) = loaders(20, 1, batch_size=4, accumulate=2)
    windows = list(loader.windows(0))
    assert loader.steps_per_epoch == len(windows) == 3
    assert [len(window.batches) for window in windows] == [2, 2, 1]
    assert [window.weight for window in windows] == [8.0, 8.0, 4.0]


def test_short_last_batch_counts_its_own_samples():
    (loader,) = loaders(3, 1, batch_size=2)
    assert [window.weight for window in loader.windows(0)] == [2.0, 1.0]


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 60), batch=SIZES, accumulate=st.integers(1, 4), world_size=st.integers(1, 5)
)
def test_every_sample_counts_once_and_ranks_stay_level(n, batch, accumulate, world_size):
    ranks = loaders(n, world_size, batch_size=batch, accumulate=accumulate)
    windows = [list(loader.windows(1)) for loader in ranks]
    assert sorted(index for rank in windows for index in counted(rank)) == list(range(n))
    for step in zip(*windows, strict=True):
        shapes = {tuple(len(b.indices) for b in window.batches) for window in step}
        assert len(shapes) == 1
        assert min(shapes.pop()) >= 1
        assert all(0 < len(w.batches) <= accumulate for w in step)
        assert {w.weight for w in step} == {sum(b.size for w in step for b in w.batches)}


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 60),
    size=st.integers(1, 20),
    accumulate=st.integers(1, 4),
    world_size=st.integers(2, 6),
)
def test_samples_of_a_step_do_not_depend_on_the_world_size(n, size, accumulate, world_size):
    options = {"global_batch_size": size, "accumulate": accumulate}
    (alone,) = loaders(n, 1, **options)
    ranks = [list(loader.windows(2)) for loader in loaders(n, world_size, **options)]
    steps = list(alone.windows(2))
    assert alone.steps_per_epoch == len(steps) == -(-n // size)
    for expected, *shared in zip(steps, *ranks, strict=True):
        assert sorted(counted(shared)) == sorted(counted([expected]))
        assert {window.weight for window in shared} == {expected.weight}


def test_ranks_see_the_order_of_one_rank_dealt_out_in_turn():
    (alone,) = loaders(40, 1, global_batch_size=8)
    ranks = loaders(40, 2, global_batch_size=8)
    order = counted(alone.windows(0))
    dealt = [[order[start + rank : start + 8 : 2] for start in range(0, 40, 8)] for rank in (0, 1)]
    for rank in (0, 1):
        assert counted(ranks[rank].windows(0)) == list(chain(*dealt[rank]))


def test_global_batch_that_does_not_divide_is_padded_in_every_step():
    ranks = loaders(20, 4, sampler=Sequential(), global_batch_size=10, accumulate=2)
    shares = [[w.batches for w in loader.windows(0)][1] for loader in ranks]
    assert [[len(b.indices) for b in share] for share in shares] == [[2, 1]] * 4
    assert [sum(b.size for b in share) for share in shares] == [3, 3, 2, 2]
    assert [share[-1].size for share in shares] == [1, 1, 0, 0]


def test_three_samples_on_four_ranks_make_one_step_on_each():
    ranks = [list(loader.windows(0)) for loader in loaders(3, 4, batch_size=1)]
    assert [len(windows) for windows in ranks] == [1, 1, 1, 1]
    assert [windows[0].batches[0].size for windows in ranks] == [1, 1, 1, 0]
    assert {windows[0].weight for windows in ranks} == {3.0}


def test_three_epochs_of_two_ranks_differ_and_share_no_sample():
    runs = []
    for _ in range(2):
        ranks = loaders(8, 2, sampler=Random(0), batch_size=2)
        runs.append([[counted(loader.windows(epoch)) for loader in ranks] for epoch in range(3)])
    assert runs[0] == runs[1]
    assert all(sorted(chain(*epoch)) == list(range(8)) for epoch in runs[0])
    assert len({str(epoch) for epoch in runs[0]}) == 3


def test_drop_last_leaves_out_only_what_makes_no_whole_batch():
    (loader,) = loaders(23, 1, batch_size=4, accumulate=2, drop_last=True)
    assert [len(w.batches) for w in loader.windows(0)] == [2, 2, 1]
    assert len(counted(loader.windows(0))) == 20
    two = loaders(23, 2, batch_size=4, drop_last=True)
    assert [len(counted(rank.windows(0))) for rank in two] == [8, 8]
    (fixed,) = loaders(23, 1, global_batch_size=8, drop_last=True)
    assert [w.weight for w in fixed.windows(0)] == [8.0, 8.0]


def test_drop_last_with_less_than_a_batch_names_both_numbers_and_the_option():
    with pytest.raises(DataError, match=r"3 samples.*batch of 8.*data\.drop_last=false"):
        loaders(3, 1, batch_size=8, drop_last=True)
    (loader,) = loaders(3, 1, batch_size=8)
    assert loader.steps_per_epoch == 1


def test_limit_ends_the_epoch_after_so_many_batches():
    data = Data(integers(100), batch_size=4)
    loader = data.train_loader(accumulate=2, limit_batches=3)
    assert [[len(b.indices) for b in w.batches] for w in loader.windows(0)] == [[4, 4], [4]]
    assert counted(loader.windows(0)) != counted(loader.windows(1))
    assert data.train_loader(limit_batches=1000).steps_per_epoch == 25


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 100), world_size=st.integers(1, 9))
def test_shards_hold_each_position_once_in_order(n, world_size):
    parts = [shard(n, rank, world_size) for rank in range(world_size)]
    assert [place for part in parts for place in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_ten_samples_on_four_ranks_are_3_3_2_2():
    assert [len(shard(10, rank, 4)) for rank in range(4)] == [3, 3, 2, 2]


def test_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="rank is 2"):
        Plan(Sequential().bind(integers(4), 0), rank=2, world_size=2)


class Weighted(Sampler):
    """Draws with replacement by weight."""

    def __init__(self, weights, num_samples):
        self.weights, self.num_samples = np.asarray(weights), num_samples

    def prepare(self, dataset, seed, step_size):
        assert len(dataset) == len(self.weights)
        self.seed = seed

    @property
    def length(self):
        return self.num_samples

    def indices(self, epoch, start, stop):
        rng = np.random.default_rng([self.seed, epoch])
        p = self.weights / self.weights.sum()
        return rng.choice(len(p), self.num_samples, p=p)[start:stop]


def test_sampler_of_the_users_own_is_shared_out_over_ranks():
    options = {"sampler": Weighted([0, 0, 1, 1], 100), "batch_size": 10}
    ranks = [counted(loader.windows(0)) for loader in loaders(4, 2, **options)]
    assert [len(rank) for rank in ranks] == [50, 50]
    assert set(ranks[0]) == set(ranks[1]) == {2, 3}
    (alone,) = loaders(4, 1, **options)
    assert sorted(counted(alone.windows(0))) == sorted(ranks[0] + ranks[1])


class Broken(Sampler):
    """Gives what it was made with."""

    def __init__(self, given):
        self.given = given

    def prepare(self, dataset, seed, step_size):
        pass

    @property
    def length(self):
        return 4

    def indices(self, epoch, start, stop):
        return np.asarray(self.given)


@pytest.mark.parametrize(
    ("given_indices", "message"),
    [
        ([0, 1, 2], r"positions \[0, 4\); allowed: 4 integers"),
        ([0.0, 1.0, 2.0, 3.0], "float64"),
        ([0, 1, 2, -1], "index -1; allowed: 0 to 3"),
        ([0, 1, 2, 4], "index 4; allowed: 0 to 3"),
    ],
)
def test_sampler_that_gives_wrong_indices_is_named(given_indices, message):
    (loader,) = loaders(4, 1, sampler=Broken(given_indices), batch_size=4)
    with pytest.raises(DataError, match=message):
        next(loader.windows(0))
