from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import ArrayDataset, ConcatDataset, ItemDataset, Weighted
from expkit.data.plan import Plan


class Counted:
    """A data set of a given length without any sample."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def fetch(self, indices):
        return {"x": indices}


def drawn(sampler, epoch=0):
    return sampler.indices(epoch, 0, sampler.length)


def chi_square(counts, expected):
    """Normal score of the statistic (Wilson and Hilferty, 1931)."""
    statistic, freedom = float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


@pytest.mark.parametrize("world_size", [1, 2])
def test_weight_0_is_never_drawn_and_ranks_share_the_draws(world_size):
    """Case 40."""
    data = ArrayDataset({"x": np.arange(4), "w": np.array([0, 0, 1, 1])})
    sampler = Weighted("w", num_samples=100).bind(data, 0)
    plans = [
        Plan(sampler, batch_size=10, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    for epoch in range(5):
        shares = [plan.indices(epoch, 0, plan.steps) for plan in plans]
        assert [len(share) for share in shares] == [100 // world_size] * world_size
        assert set(np.concatenate(shares).tolist()) == {2, 3}


def test_samples_are_drawn_in_proportion_to_their_weights():
    weights = np.array([1.0, 0.0, 3.0, 2.5, 0.5])
    sampler = Weighted(weights, num_samples=200_000).bind(Counted(5), 0)
    counts = np.bincount(drawn(sampler), minlength=5)
    assert counts[1] == 0
    possible = weights > 0
    expected = weights[possible] / weights.sum() * 200_000
    assert abs(chi_square(counts[possible], expected)) < 4


def test_draws_and_epochs_are_independent_of_each_other():
    sampler = Weighted([1.0] * 8, num_samples=50_000).bind(Counted(8), 0)
    one, other = drawn(sampler, 0), drawn(sampler, 1)
    for pairs in (one[1:] * 8 + one[:-1], one * 8 + other):
        counts = np.bincount(pairs, minlength=64)
        assert abs(chi_square(counts, len(pairs) / 64)) < 4


def test_classes_are_equally_likely_and_so_are_the_samples_of_one():
    y = np.array([0] * 90 + [1] * 9 + [7])
    sampler = Weighted(by="y", num_samples=90_000).bind(ArrayDataset({"y": y}), 0)
    indices = drawn(sampler)
    classes = np.bincount(y[indices], minlength=8)[[0, 1, 7]]
    assert abs(chi_square(classes, 30_000)) < 4
    assert abs(chi_square(np.bincount(indices, minlength=100)[:90], 30_000 / 90)) < 4


@pytest.mark.parametrize(
    "data",
    [
        ArrayDataset({"y": ["b", "a", "b", "b"]}),
        ItemDataset([{"y": 1}, {"y": 0}, {"y": 1}, {"y": 1}]),
        ConcatDataset(
            {
                "one": ArrayDataset({"y": np.array([1, 0])}),
                "two": ArrayDataset({"y": np.array([1, 1])}),
            }
        ),
    ],
)
def test_classes_are_read_from_texts_items_and_several_sets(data):
    sampler = Weighted(by="y", num_samples=1000).bind(data, 0)
    assert np.count_nonzero(drawn(sampler) == 1) == pytest.approx(500, abs=60)


def test_without_replacement_each_next_draw_is_in_proportion_to_what_is_left():
    weights = [1.0, 2.0, 4.0]
    sampler = Weighted(weights, replacement=False).bind(Counted(3), 0)
    found = dict.fromkeys(itertools.permutations(range(3)), 0)
    for epoch in range(6000):
        found[tuple(drawn(sampler, epoch).tolist())] += 1
    expected = [weights[a] / 7 * weights[b] / (7 - weights[a]) * 6000 for a, b, _ in found]
    assert abs(chi_square(np.array(list(found.values())), np.array(expected))) < 4


def test_without_replacement_all_that_have_a_weight_come_once():
    weights = np.tile([0.0, 1e-300, 1.0, 1e300], 5)
    sampler = Weighted(weights, replacement=False).bind(Counted(20), 0)
    assert sampler.length == 15
    order = drawn(sampler, 3).tolist()
    assert sorted(order) == np.flatnonzero(weights).tolist()
    assert set(order[:5]) == {3, 7, 11, 15, 19}


def test_weights_of_any_size_count_by_their_ratio():
    for factor in (1e-300, 1.0, 1e300):
        sampler = Weighted([factor, 3 * factor], num_samples=4000).bind(Counted(2), 0)
        assert drawn(sampler).sum() == pytest.approx(3000, abs=120)


def test_draws_of_seed_epoch_and_weights_never_change():
    weights = np.arange(10.0)
    sampler = Weighted(weights, num_samples=10**6).bind(Counted(10), 3)
    assert sampler.indices(0, 0, 8).tolist() == [7, 2, 5, 9, 6, 9, 4, 6]
    assert sampler.indices(4, 10**6 - 3, 10**6).tolist() == [6, 5, 5]
    sampler = Weighted(weights, replacement=False).bind(Counted(10), 3)
    assert drawn(sampler).tolist() == [6, 4, 8, 9, 5, 7, 3, 1, 2]
    assert drawn(sampler, 4).tolist() == [5, 4, 8, 9, 6, 7, 3, 1, 2]


def test_any_number_of_draws_needs_no_memory():
    sampler = Weighted([1.0, 1.0], num_samples=10**15).bind(Counted(2), 0)
    far = sampler.indices(0, 10**15 - 40, 10**15)
    assert 5 < far.sum() < 35


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0, 1.0], r"sampler\.weights is -2.0 at sample 1; allowed: 0 or more"),
        ([1.0, 1.0, math.nan], r"sampler\.weights is NaN at sample 2"),
        ([1.0, 1.0, math.inf], r"sampler\.weights is inf at sample 2"),
        ([0, 0, 0], r"sampler\.weights is 0 for all samples"),
        ([1.0, 1.0], r"has 2 numbers; allowed: one for each of the 3 samples"),
        ([[1.0], [1.0], [1.0]], r"values of shape \(1,\); allowed: one number per sample"),
        ("v", r"sampler\.weights='v' is -1.0 at sample 0"),
        ("z", r"no field 'z'; allowed: v, t"),
    ],
)
@pytest.mark.parametrize("replacement", [True, False])
def test_weights_that_are_none_are_refused(weights, message, replacement):
    data = ArrayDataset({"v": np.array([-1, 1, 1]), "t": np.array([0.5, 1.5, 2.5])})
    with pytest.raises(DataError, match=message):
        Weighted(weights, replacement=replacement).bind(data, 0)


def test_real_numbers_are_no_classes():
    data = ArrayDataset({"t": np.array([0.5, 1.5, 2.5]), "x": np.zeros((3, 2), int)})
    with pytest.raises(DataError, match=r"sampler\.by='t' gives float64 .*one class per sample"):
        Weighted(by="t").bind(data, 0)
    with pytest.raises(DataError, match=r"sampler\.by='x' gives int64 values of shape \(2,\)"):
        Weighted(by="x").bind(data, 0)


def test_more_draws_than_samples_need_replacement():
    with pytest.raises(
        ConfigError, match=r"num_samples: is 3, but only 2 samples .* at most 2.*num_samples=2\)"
    ):
        Weighted([0, 1, 1], num_samples=3, replacement=False).bind(Counted(3), 0)
    assert Weighted([0, 1, 1], num_samples=3).bind(Counted(3), 0).length == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"sampler\.weights: is null, and so is sampler\.by.*sampler\.by=y"),
        ({"weights": "w", "by": "y"}, r"sampler\.weights: is given, and so is.*sampler\.by=null"),
        ({"by": "y", "num_samples": 0}, r"sampler\.num_samples: is 0; allowed: an integer"),
        ({"by": "y", "num_samples": 2.5}, r"sampler\.num_samples: is 2\.5"),
        ({"by": "y", "seed": "a"}, r"sampler\.seed: is 'a'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Weighted(**options)
