from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import yaml

from expkit.core.errors import ConfigError, DataError
from expkit.data import ArrayDataset, ItemDataset, Random, Sampler, Sequential, Sorted
from expkit.data.plan import Plan, shard

CONF = Path(__file__).parents[2] / "conf"


class Counted:
    """A data set of a given length without any sample."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def fetch(self, indices):
        return {"x": indices}


def order(sampler: Sampler, epoch: int = 0) -> list[int]:
    return sampler.indices(epoch, 0, sampler.length).tolist()


FROZEN = {
    (10, 0, 0): ([5, 9, 6, 4, 7, 2], [1, 8]),
    (10, 0, 1): ([6, 7, 4, 5, 8, 9], [2, 0]),
    (1437, 0, 0): ([851, 886, 1090, 835, 704, 29], [1427, 1028]),
    (1437, 7, 0): ([684, 1262, 555, 1081, 633, 817], [481, 1431]),
    (8192, 0, 0): ([2527, 3519, 5398, 5477, 6005, 5822], [8188, 5769]),
    (8193, 0, 0): ([1177, 1838, 5607, 658, 6204, 4051], [151, 564]),
    (10**6, 0, 1): ([521355, 140357, 713229, 457043, 747479, 988523], [777032, 188101]),
    (10**12, 7, 0): (
        [411354516406, 60733623761, 153603769178, 609736351872, 982044153953, 508532500624],
        [909837486825, 517091392841],
    ),
}


@pytest.mark.parametrize(("n", "seed", "epoch"), FROZEN)
def test_random_order_of_seed_epoch_and_length_never_changes(n, seed, epoch):
    sampler = Random(seed).bind(Counted(n), 99)
    first, last = FROZEN[n, seed, epoch]
    assert sampler.indices(epoch, 0, 6).tolist() == first
    assert sampler.indices(epoch, n - 2, n).tolist() == last


def test_whole_random_order_of_digits_never_changes():
    indices = Random().bind(Counted(1437), 0).indices(0, 0, 1437)
    assert hashlib.sha256(indices.tobytes()).hexdigest()[:16] == "4b82607ac424960b"


def test_random_takes_the_seed_of_the_run_where_it_has_none():
    data = Counted(50)
    assert order(Random().bind(data, 3)) == order(Random(3).bind(data, 8))
    assert order(Random().bind(data, 3)) != order(Random().bind(data, 4))


def test_each_epoch_has_another_order_and_asking_leaves_no_trace():
    sampler = Random().bind(Counted(8), 0)
    orders = [order(sampler, epoch) for epoch in range(3)]
    assert len({tuple(one) for one in orders}) == 3
    assert [order(sampler, epoch) for epoch in (2, 0, 1)] == [orders[2], orders[0], orders[1]]


def test_a_bound_sampler_leaves_the_unbound_one_free():
    sampler = Random()
    small, large = sampler.bind(Counted(5), 0), sampler.bind(Counted(7), 1)
    assert (small.length, large.length) == (5, 7)
    assert sorted(order(small)) == list(range(5))


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True])
def test_random_refuses_a_seed_that_is_none(seed):
    with pytest.raises(ConfigError, match=r"sampler\.seed: is .* at least 0"):
        Random(seed)


def test_sequential_is_the_order_of_the_data_set():
    sampler = Sequential().bind(Counted(5), 0)
    assert order(sampler) == order(sampler, 9) == [0, 1, 2, 3, 4]
    assert sampler.indices(0, 2, 4).dtype == np.int64


def test_sorted_is_stable_in_both_directions():
    data = ArrayDataset({"length": np.array([2, 1, 2, 3, 1], dtype=np.uint8)})
    assert order(Sorted("length").bind(data, 0)) == [1, 4, 0, 2, 3]
    assert order(Sorted("length", descending=True).bind(data, 0)) == [3, 0, 2, 1, 4]


def test_sorted_reads_samples_that_come_one_by_one():
    data = ItemDataset([{"text": "ccc", "n": 1}, {"text": "a", "n": 3}, {"text": "bb", "n": 2}])
    assert order(Sorted("n").bind(data, 0)) == [0, 2, 1]
    assert order(Sorted(lambda sample: len(sample["text"])).bind(data, 0)) == [1, 2, 0]


def test_sorted_names_what_it_cannot_sort():
    data = ArrayDataset({"x": np.zeros((3, 2)), "y": np.array([1.0, np.nan, 2.0])})
    with pytest.raises(DataError, match="no field 'z'; allowed: x, y"):
        Sorted("z").bind(data, 0)
    with pytest.raises(DataError, match="one number per sample"):
        Sorted("x").bind(data, 0)
    with pytest.raises(DataError, match="NaN at sample 1"):
        Sorted("y").bind(data, 0)


def shares(sampler, world_size, epoch=0, **options):
    """What each rank trains on in an epoch, padding included."""
    plans = [
        Plan(sampler, rank=rank, world_size=world_size, **options) for rank in range(world_size)
    ]
    assert len({plan.steps for plan in plans}) == 1
    return [plan.indices(epoch, 0, plan.steps).tolist() for plan in plans]


def test_two_ranks_of_101_samples_have_51_each():
    even, odd = shares(Sequential().bind(Counted(101), 0), 2, batch_size=8)
    assert even == list(range(0, 101, 2))
    assert odd == [*range(1, 101, 2), 0]


def test_evaluation_gives_each_of_ten_samples_to_one_of_four_ranks_in_order():
    parts = [list(shard(10, rank, 4)) for rank in range(4)]
    assert [len(part) for part in parts] == [3, 3, 2, 2]
    assert list(itertools.chain(*parts)) == list(range(10))


@pytest.mark.parametrize("make", [Sequential, Random])
def test_fewer_samples_than_ranks_are_shared_too(make):
    """Case 38."""
    sampler = make().bind(Counted(3), 0)
    parts = shares(sampler, 4, batch_size=1)
    assert [len(part) for part in parts] == [1, 1, 1, 1]
    assert sorted(itertools.chain(*parts[:3])) == [0, 1, 2]
    assert [list(shard(3, rank, 4)) for rank in range(4)] == [[0], [1], [2], []]


def test_epochs_of_two_ranks_have_three_orders_and_cover_all():
    """Case 36."""
    runs = [
        [shares(Random(0).bind(Counted(8), 5), 2, epoch, batch_size=2) for epoch in range(3)]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    for one, other in runs[0]:
        assert sorted(one + other) == list(range(8))
    assert len({tuple(one + other) for one, other in runs[0]}) == 3


def test_every_world_size_sees_the_same_order():
    sampler = Random().bind(Counted(60), 3)
    whole = order(sampler, 1)
    for world_size in (1, 2, 3, 4):
        parts = shares(sampler, world_size, 1, global_batch_size=12)
        together = np.array(parts).reshape(world_size, 5, -1).transpose(1, 2, 0)
        assert together.reshape(-1).tolist() == whole


@pytest.mark.parametrize("n", [2000, 100_000])
def test_seeds_and_epochs_are_independent(n):
    """Pairs of neighbours' first 2,000 images, chi-square over 8 x 8 cells."""
    pairs = [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((3, 4), (4, 3)), ((7, 1), (7, 10))]
    for first, second in pairs:
        one, other = (
            Random(seed).bind(Counted(n), 0).indices(epoch, 0, 2000) * 8 // n
            for seed, epoch in (first, second)
        )
        counts = np.bincount(one * 8 + other, minlength=64)
        statistic = ((counts - 2000 / 64) ** 2).sum() / (2000 / 64)
        assert 25 < statistic < 125, (first, second)  # 63 degrees of freedom: 63 +- 5.5 x 11.2


@pytest.mark.parametrize("n", [1000, 8192, 8193, 10**9, 10**12, 2**61 + 1])
def test_binding_and_the_first_index_need_no_more_memory_at_any_length(n):
    sampler = Random()
    sampler.bind(Counted(n), 0).indices(0, 0, 1)
    tracemalloc.start()
    sampler.bind(Counted(n), 0).indices(3, n - 1, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("path", sorted((CONF / "sampler").glob("*.yaml")), ids=lambda p: p.stem)
def test_options_of_a_sampler_are_the_arguments_of_its_class(path):
    options = yaml.safe_load(path.read_text())
    module, _, name = options.pop("_target_").rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert options.keys() == parameters.keys()
    for key in options.keys() - {"seed", "by", "factory"}:  # those that have no default are set
        assert options[key] == parameters[key].default, key
