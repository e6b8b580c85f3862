from __future__ import annotations

import logging

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import ArrayDataset, Bucketed, Collate, ConcatDataset, ItemDataset, Pad
from expkit.data.plan import Plan


class Counted:
    """A data set of a given length without any sample."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def fetch(self, indices):
        return {"x": indices}


def thousand(**options):
    options = {"lengths": np.arange(1000), "batches_per_bucket": 4, **options}
    return Bucketed(**options).bind(Counted(1000), 0, 7)


def windows(sampler, epoch, size):
    order = sampler.indices(epoch, 0, sampler.length)
    return [order[start : start + size] for start in range(0, len(order), size)]


@pytest.mark.parametrize("epoch", range(20))
def test_samples_of_a_step_are_of_like_length_and_the_short_step_is_last(epoch):
    steps = windows(thousand(), epoch, 7)
    assert sorted(np.concatenate(steps).tolist()) == list(range(1000))
    assert max(np.ptp(step) for step in steps) <= 28
    assert [len(step) for step in steps] == [7] * 142 + [6]


def test_ranks_have_equally_many_batches_of_samples_of_like_length():
    data = Counted(1000)
    sampler = Bucketed(lengths=np.arange(1000), batches_per_bucket=4).bind(data, 0, 14)
    ranks = [Plan(sampler, batch_size=7, rank=rank, world_size=2) for rank in range(2)]
    assert ranks[0].steps == ranks[1].steps == 72
    for step in range(71):
        shares = [plan.indices(3, step, step + 1) for plan in ranks]
        assert [len(share) for share in shares] == [7, 7]
        assert np.ptp(np.concatenate(shares)) <= 4 * 14
    assert [plan.layout(71).share for plan in ranks] == [3, 3]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_step_lies_within_a_buckets_neighbours_on_any_number_of_ranks(world_size):
    """With W times the samples in a step, a W-th of the batches keeps lengths as close."""
    size = 7 * world_size
    for number in (4, 4 // world_size):
        sampler = Bucketed(lengths=np.arange(1000), batches_per_bucket=number)
        steps = windows(sampler.bind(Counted(1000), 0, size), 2, size)
        assert max(np.ptp(step) for step in steps) < number * size
    assert number * size == 28


def test_each_epoch_has_other_batches_in_another_order():
    sampler = thousand()
    one, other = windows(sampler, 0, 7), windows(sampler, 1, 7)
    assert {frozenset(step.tolist()) for step in one} != {frozenset(s.tolist()) for s in other}
    assert [step.min() // 28 for step in one] != [step.min() // 28 for step in other]
    first = [step.min() // 28 for step in one[:20]]
    assert first != sorted(first)


def test_which_samples_fill_no_step_is_drawn_each_epoch():
    sampler = thousand()
    last = np.concatenate([windows(sampler, epoch, 7)[-1] for epoch in range(300)])
    assert np.ptp(np.array([windows(sampler, epoch, 7)[-1] for epoch in range(40)]), 1).max() <= 28
    counts = np.bincount(last // 100, minlength=10)
    assert counts.min() > 90, "each tenth of the lengths should be left over 180 times"


def test_order_of_seed_epoch_and_lengths_never_changes():
    lengths = np.arange(1000) * 7919 % 1000
    sampler = Bucketed(lengths=lengths, batches_per_bucket=4, seed=1).bind(Counted(1000), 0, 7)
    assert sampler.indices(0, 0, 7).tolist() == [536, 820, 709, 857, 635, 351, 425]
    assert sampler.indices(5, 994, 1000).tolist() == [89, 768, 694, 126, 237, 336]
    sampler = Bucketed(lengths=np.arange(30_000)).bind(Counted(30_000), 0, 128)
    assert sampler.indices(2, 29_996, 30_000).tolist() == [8895, 6055, 12600, 178]


def test_a_short_stretch_of_a_long_order_draws_one_bucket_only():
    sampler = Bucketed(lengths=np.zeros(10**6), batches_per_bucket=100).bind(Counted(10**6), 0, 32)
    sampler.indices(4, 500_000, 500_032)
    assert len(sampler._latest[1]._drawn) <= 2


def test_one_bucket_of_all_shuffles_all():
    sampler = Bucketed(lengths=np.arange(100), batches_per_bucket=1000).bind(Counted(100), 0, 8)
    assert np.mean([np.ptp(step) for step in windows(sampler, 0, 8)[:-1]]) > 60


def test_fewer_samples_than_a_step_are_one_step():
    sampler = Bucketed(lengths=[3, 1, 2]).bind(Counted(3), 0, 8)
    assert sorted(sampler.indices(0, 0, 3).tolist()) == [0, 1, 2]
    assert sampler.indices(0, 1, 1).tolist() == []


TEXTS = ["a", "bbb", "cc", "dddd", "ee", "f"]


def by_length(data, by, size=2):
    """The lengths that the sampler read, seen in how it groups."""
    sampler = Bucketed(by, batches_per_bucket=1).bind(data, 0, size)
    return sorted(sorted(step.tolist()) for step in windows(sampler, 0, size))


@pytest.mark.parametrize(
    ("data", "by"),
    [
        (ArrayDataset({"t": TEXTS}), "t"),
        (ArrayDataset({"n": np.array([1, 3, 2, 4, 2, 1])}), "n"),
        (ItemDataset([{"t": text} for text in TEXTS]), "t"),
        (ItemDataset([{"n": len(text)} for text in TEXTS]), "n"),
        (ItemDataset([{"n": float(len(text))} for text in TEXTS]), "n"),
        (ItemDataset([{"n": len(text), "o": {"k": (1, None)}} for text in TEXTS]), "n"),
        (ItemDataset([{"o": {"t": text}} for text in TEXTS]), lambda sample: len(sample["o"]["t"])),
        (ItemDataset([{"x": list(text.encode())} for text in TEXTS], Collate({"x": Pad()})), "x"),
        (ItemDataset([{"t": text} for text in TEXTS]), lambda sample: len(sample["t"])),
        (ArrayDataset({"t": TEXTS}), lambda sample: len(sample["t"])),
        (
            ConcatDataset(
                {"a": ArrayDataset({"t": TEXTS[:2]}), "b": ArrayDataset({"t": TEXTS[2:]})}
            ),
            "t",
        ),
    ],
)
def test_lengths_are_read_from_numbers_texts_sequences_and_functions(data, by):
    assert by_length(data, by) == [[0, 5], [1, 3], [2, 4]]


def test_samples_that_come_one_by_one_are_read_once_each():
    class Items:
        reads = 0

        def __len__(self):
            return 6

        def __getitem__(self, index):
            self.reads += 1
            return {"t": TEXTS[index]}

    items = Items()
    by_length(ItemDataset(items), "t")
    assert items.reads == 6
    Bucketed(lengths=range(6)).bind(ItemDataset(items), 0, 2)
    assert items.reads == 6


def test_equal_lengths_get_a_warning(caplog):
    caplog.set_level(logging.WARNING, "expkit")
    Bucketed("x").bind(ArrayDataset({"x": np.zeros((5, 8))}), 0, 2)
    assert "no better than sampler=random here: all 5 samples have length 8" in caplog.text


def test_what_cannot_be_grouped_by_is_named():
    data = ArrayDataset({"x": np.zeros((3, 2)), "y": np.array([1.0, np.nan, 2.0])})
    with pytest.raises(DataError, match="no field 'z'; allowed: x, y"):
        Bucketed("z").bind(data, 0, 2)
    with pytest.raises(DataError, match="is NaN at sample 1"):
        Bucketed("y").bind(data, 0, 2)
    with pytest.raises(DataError, match="by='o' is a object, which has no length"):
        Bucketed("o").bind(ItemDataset([{"o": object()}]), 0, 2)
    with pytest.raises(DataError, match=r"lengths has 2 numbers; .* each of the 3 samples"):
        Bucketed(lengths=[1, 2]).bind(data, 0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"sampler\.by: is null, and so is sampler\.lengths; allowed: one .*sampler\.by=x"),
        ({"by": "x", "lengths": [1]}, r"both are given.*sampler\.by=null"),
        ({"by": "x", "batches_per_bucket": 0}, r"batches_per_bucket: is 0; allowed: an integer"),
        ({"by": "x", "seed": -1}, r"sampler\.seed: is -1"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Bucketed(**options)
