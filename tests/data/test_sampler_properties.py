"""What holds for every sampler, whatever the sizes, seeds and stretches are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.data import (
    ArrayDataset,
    Bucketed,
    ConcatDataset,
    Mixed,
    Random,
    Sequential,
    Sorted,
    Weighted,
)
from expkit.data.plan import Plan

MAKE = {
    "sequential": Sequential,
    "random": Random,
    "sorted": lambda: Sorted("size", descending=True),
    "bucketed": lambda: Bucketed("size", batches_per_bucket=2),
    "bucketed_large": lambda: Bucketed("size", batches_per_bucket=100),
    "weighted": lambda: Weighted("weight"),
    "weighted_more": lambda: Weighted("weight", num_samples=77),
    "weighted_once": lambda: Weighted("weight", replacement=False),
    "balanced": lambda: Weighted(by="y"),
    "mixed_all": lambda: Mixed("mixed"),
    "mixed_least": lambda: Mixed("mixed", "least"),
    "mixed_most": lambda: Mixed("mixed", "most", {"a": 2, "b": 1.5, "c": 1}),
    "in_turn_all": lambda: Mixed("in_turn"),
    "in_turn_least": lambda: Mixed("in_turn", "least", shuffle=False),
    "in_turn_most": lambda: Mixed("in_turn", "most", {"a": 1, "b": 3, "c": 0.7}),
    "sequential_all": lambda: Mixed("sequential", shuffle=False),
    "sequential_least": lambda: Mixed("sequential", "least", {"a": 1, "b": 1, "c": 1}),
    "sequential_most": lambda: Mixed("sequential", "most"),
}


def part(n, seed):
    rng = np.random.default_rng(seed)
    return ArrayDataset(
        {
            "x": np.arange(n),
            "size": rng.integers(0, 9, n),
            "weight": rng.random(n) + 0.1,
            "y": np.arange(n) % 3,
        }
    )


sizes = st.tuples(st.integers(8, 40), st.integers(8, 40), st.integers(8, 40))
each_sampler = pytest.mark.parametrize("name", MAKE)


def dataset(lengths):
    named = zip("abc", lengths, strict=True)
    return ConcatDataset({name: part(length, length) for name, length in named})


def bound(name, lengths, seed=0, step=4):
    return MAKE[name]().bind(dataset(lengths), seed, step)


@each_sampler
@settings(max_examples=15, deadline=None)
@given(lengths=sizes, seed=st.integers(0, 2**40), epoch=st.integers(0, 50), data=st.data())
def test_a_stretch_is_what_its_parts_are(name, lengths, seed, epoch, data):
    sampler = bound(name, lengths, seed, data.draw(st.integers(1, 8)))
    n = sampler.length
    whole = sampler.indices(epoch, 0, n)
    assert whole.dtype == np.int64
    assert whole.shape == (n,)
    assert 0 <= whole.min() <= whole.max() < sum(lengths)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    parts = [
        sampler.indices(epoch, start, stop)
        for start, stop in zip([0, *cuts], [*cuts, n], strict=True)
    ]
    assert np.array_equal(whole, np.concatenate(parts))


@each_sampler
@settings(max_examples=8, deadline=None)
@given(lengths=sizes, epoch=st.integers(0, 9), asked=st.lists(st.integers(0, 9), max_size=4))
def test_what_was_asked_before_changes_nothing(name, lengths, epoch, asked):
    sampler, length = bound(name, lengths), bound(name, lengths).length
    for other in asked:
        sampler.indices(other, length // 3, length // 2)
        assert sampler.length == length
    assert np.array_equal(
        sampler.indices(epoch, 0, length), bound(name, lengths).indices(epoch, 0, length)
    )


@each_sampler
@settings(max_examples=5, deadline=None)
@given(lengths=sizes, seed=st.integers(0, 1000))
def test_every_sample_is_reached(name, lengths, seed):
    sampler = bound(name, lengths, seed)
    drawn_freely = name in ("weighted", "weighted_more", "balanced")
    epochs = 200 if drawn_freely else 5 if "least" in name else 1
    seen = [sampler.indices(epoch, 0, sampler.length) for epoch in range(epochs)]
    found = np.bincount(np.concatenate(seen), minlength=sum(lengths))
    assert found.min() >= 1
    if not (drawn_freely or "least" in name or "most" in name):
        assert found.max() == 1


@each_sampler
@settings(max_examples=10, deadline=None)
@given(lengths=sizes, step=st.integers(1, 8), epoch=st.integers(0, 9))
def test_one_two_and_three_ranks_see_the_same_windows(name, lengths, step, epoch):
    sampler = bound(name, lengths, step=step)
    (alone,), *others = (
        [
            Plan(sampler, global_batch_size=step, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for world_size in (1, 2, 3)
    )
    for number in range(alone.steps):
        window = alone.indices(epoch, number, number + 1)
        for plans in others:
            shares = [plan.indices(epoch, number, number + 1) for plan in plans]
            assert len({len(share) for share in shares}) == 1
            together = np.stack(shares, axis=1).reshape(-1)
            assert np.array_equal(together[: len(window)], window)


@each_sampler
def test_seeds_and_epochs_have_orders_of_their_own(name):
    orders = [
        tuple(bound(name, (20, 31, 12), seed).indices(epoch, 0, 30).tolist())
        for seed in range(3)
        for epoch in range(3)
    ]
    same = name in ("sequential", "sorted", "sequential_all")
    goes_on = name == "in_turn_least"  # each set in its own order, from where it stopped
    assert len(set(orders)) == (1 if same else 3 if goes_on else 9)
