from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError
from expkit.data import ArrayDataset, ConcatDataset, Mixed

SIZES = {"a": 10, "b": 25, "c": 3}
RATIO = {"a": 1, "b": 2, "c": 0.5}


class Counted:
    """A data set of a given length without any sample."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def fetch(self, indices):
        return {"x": indices}


def sets(**sizes):
    return ConcatDataset({name: Counted(size) for name, size in (sizes or SIZES).items()})


def mixed(*args, step_size=4, **options):
    return Mixed(*args, **options).bind(sets(), 0, step_size)


def order(sampler, epoch=0):
    return sampler.indices(epoch, 0, sampler.length)


def names(indices):
    """Which set each sample is of."""
    return "".join("abc"[np.searchsorted([10, 35], index, side="right")] for index in indices)


def counts(sampler, epoch=0):
    return [names(order(sampler, epoch)).count(name) for name in "abc"]


@pytest.mark.parametrize("mode", ["mixed", "in_turn", "sequential"])
def test_all_is_each_sample_once(mode):
    sampler = mixed(mode)
    assert sampler.length == 38
    for epoch in range(3):
        assert sorted(order(sampler, epoch).tolist()) == list(range(38))


@pytest.mark.parametrize("mode", ["mixed", "in_turn", "sequential"])
@pytest.mark.parametrize(
    ("length", "ratio", "expected"),
    [
        ("least", None, [3, 3, 3]),
        ("most", None, [25, 25, 25]),
        ("least", RATIO, [6, 12, 3]),
        ("most", RATIO, [13, 25, 7]),
        ("least", {"a": 0.1, "b": 0.3, "c": 0.1}, [3, 9, 3]),
        ("most", {"a": 0.1, "b": 0.3, "c": 0.1}, [10, 30, 10]),
    ],
)
def test_an_epoch_ends_with_the_first_or_the_last_set(mode, length, ratio, expected):
    sampler = Mixed(mode, length, ratio).bind(sets(), 0, 2)
    assert sampler.length == sum(expected)
    assert [counts(sampler, epoch) for epoch in range(3)] == [expected] * 3


@pytest.mark.parametrize("mode", ["mixed", "in_turn", "sequential"])
@pytest.mark.parametrize("ratio", [None, RATIO])
def test_most_uses_every_set_up_and_smaller_ones_go_round_again(mode, ratio):
    sampler = mixed(mode, "most", ratio)
    for epoch in range(3):
        found = np.bincount(order(sampler, epoch), minlength=38)
        assert found.min() == 1
        for part in (found[:10], found[10:35], found[35:]):
            assert np.ptp(part) <= 1


@pytest.mark.parametrize("mode", ["mixed", "in_turn", "sequential"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_least_goes_on_in_the_next_epoch_where_a_set_stopped(mode, shuffle):
    if mode == "mixed" and not shuffle:
        return
    sampler = Mixed(mode, "least", shuffle=shuffle).bind(sets(), 0, 2)
    seen = np.concatenate([order(sampler, epoch) for epoch in range(9)])
    found = np.bincount(seen, minlength=38)
    assert found[35:].tolist() == [9, 9, 9]
    assert found[10:35].min() == 1
    assert sorted(found[:10].tolist()) == [2] * 3 + [3] * 7


def test_laps_of_one_epoch_have_different_orders():
    indices = order(mixed("sequential", "most"))[:20]
    assert sorted(indices[:10]) == sorted(indices[10:]) == list(range(10))
    assert indices[:10].tolist() != indices[10:].tolist()


def test_sets_are_mixed():
    sampler = mixed("mixed")
    places = [index for index, name in enumerate(names(order(sampler))) if name == "b"]
    assert places[0] < 5
    assert places[-1] > 33
    assert len({names(order(sampler, epoch)) for epoch in range(5)}) == 5


def test_sequential_is_one_set_after_the_other():
    assert names(order(mixed("sequential"))) == "a" * 10 + "b" * 25 + "c" * 3


def test_steps_come_from_one_set_each_in_turn_as_long_as_it_has_whole_ones():
    assert names(order(mixed("in_turn"))) == ("aaaabbbbaaaabbbbbbbbbbbbbbbbbbbbaabccc")


def test_turns_are_taken_by_ratio():
    sampler = Mixed("in_turn", "least", {"a": 1, "b": 2, "c": 0.5}).bind(
        sets(a=400, b=800, c=200), 0, 10
    )
    indices = sampler.indices(0, 0, sampler.length)
    turns = np.searchsorted([400, 1200], indices[::10], side="right")
    shown = "".join("abc"[turn] for turn in turns)
    assert (shown.count("a"), shown.count("b"), shown.count("c")) == (40, 80, 20)
    assert {shown[i : i + 7] for i in range(0, 140, 7)} == {"abcbabb"}


def test_without_shuffle_each_set_has_its_own_order():
    sampler = mixed("in_turn", shuffle=False)
    for epoch in range(2):
        indices = order(sampler, epoch)
        for low, high in ((0, 10), (10, 35), (35, 38)):
            part = indices[(indices >= low) & (indices < high)]
            assert part.tolist() == list(range(low, high))


def test_order_of_seed_epoch_and_sets_never_changes():
    frozen = {
        ("mixed", "all", None): ([0, 16, 15, 2, 25, 32], [24, 27, 28]),
        ("mixed", "most", None): ([36, 3, 35, 2, 36, 0], [19, 14, 10]),
        ("in_turn", "all", None): ([5, 3, 6, 1, 29, 15], [37, 35, 36]),
        ("sequential", "least", None): ([4, 2, 1, 12, 26, 32], [37, 35, 36]),
    }
    for arguments, (first, last) in frozen.items():
        sampler = Mixed(*arguments, seed=5).bind(sets(), 0, 4)
        n = sampler.length
        assert sampler.indices(1, 0, 6).tolist() == first
        assert sampler.indices(1, n - 3, n).tolist() == last
    sampler = Mixed("mixed", "least", RATIO, seed=5).bind(sets(), 0, 4)
    assert sampler.indices(1, 0, 6).tolist() == [27, 17, 19, 3, 25, 36]
    sampler = Mixed("in_turn", "most", RATIO, seed=5).bind(sets(), 0, 4)
    assert sampler.indices(1, 0, 6).tolist() == [8, 9, 1, 3, 29, 15]
    large = Mixed().bind(sets(a=10**7, b=10**12), 0, 4)
    assert large.indices(1, 0, 2).tolist() == [794416472880, 238505034580]


def test_one_set_is_refused():
    with pytest.raises(ConfigError, match=r"sampler: is mixed, .* there is one.*sampler=random"):
        Mixed().bind(ArrayDataset({"x": np.arange(3)}), 0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "blended"}, r"sampler\.mode: is 'blended'; allowed: mixed, in_turn, sequential"),
        ({"length": "longest"}, r"sampler\.length: is 'longest'; allowed: all, least, most"),
        ({"ratio": RATIO}, r"sampler\.ratio: has no effect with sampler\.length=all"),
        ({"shuffle": False}, r"sampler\.shuffle: is false, but sampler\.mode=mixed"),
        ({"length": "least", "ratio": {"a": 0}}, r"sampler\.ratio: is {'a': 0}; allowed: null"),
        ({"length": "least", "ratio": {"a": True}}, r"sampler\.ratio: is {'a': True}"),
        ({"length": "least", "ratio": 2}, r"sampler\.ratio: is 2; allowed: null, or set ->"),
        ({"seed": -1}, r"sampler\.seed: is -1"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Mixed(**options)


def test_options_that_do_not_fit_the_sets_are_refused():
    with pytest.raises(ConfigError, match=r"is of a, b; .* a, b, c.*ratio={a:1,b:1,c:1}"):
        mixed("mixed", "least", {"a": 1, "b": 2})
    with pytest.raises(ConfigError, match=r"leaves no sample of set 'a' \(10 samples\)"):
        mixed("mixed", "least", {"a": 1, "b": 100, "c": 100})
    with pytest.raises(ConfigError, match="no set has the 26 samples of a step"):
        mixed("in_turn", step_size=26)
    with pytest.raises(ConfigError, match=r"makes an epoch of .* samples; allowed: at most"):
        mixed("mixed", "most", {"a": 1, "b": 1e-20, "c": 1})
