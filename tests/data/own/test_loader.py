from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Data, OwnLoader, Random, Sequential


def batches(*sizes):
    """Batches of such sizes, whose field ``x`` counts on."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        {"x": np.arange(a, a + n, dtype=np.float32), "name": [f"s{i}" for i in range(a, a + n)]}
        for a, n in zip(starts, sizes, strict=True)
    ]


def kept(batch, field="x"):
    values = batch.fields[field]
    return (values if batch.weights is None else values[batch.weights > 0]).tolist()


def rows(windows, field="x"):
    return [[kept(batch, field) for batch in window.batches] for window in windows]


def training(loader, **options):
    return Data(OwnLoader(loader)).train_loader(**options)


def evaluated(loader, **options):
    return [*Data(None, OwnLoader(loader)).eval_loaders(**options)[""].batches()]


# -- batches as they come -------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 2, 3, 9])
def test_windows_are_made_of_the_batches_as_they_come(accumulate):
    given = batches(4, 1, 3, 2)
    loader = training(given, accumulate=accumulate)
    windows = list(loader.windows(0))
    groups = [given[i : i + accumulate] for i in range(0, 4, accumulate)]
    assert rows(windows) == [[b["x"].tolist() for b in group] for group in groups]
    assert [w.weight for w in windows] == [sum(len(b["x"]) for b in group) for group in groups]
    assert loader.steps_per_epoch == len(groups)
    assert not any(window.ends_epoch for window in windows)
    indices = [i for w in windows for b in w.batches for i in b.indices.tolist()]
    assert indices == list(range(10))


def test_a_loader_without_length_ends_where_it_ends():
    def loader():
        yield from batches(2, 2, 2)

    made = training(loader, accumulate=2)
    assert made.steps_per_epoch is None
    assert [window.ends_epoch for window in made.windows(0)] == [False, True]


@pytest.mark.parametrize(("limit", "steps"), [(1, 1), (3, 2), (9, 2)])
def test_an_epoch_ends_at_the_limit(limit, steps):
    loader = training(batches(2, 2, 2, 2), accumulate=2, limit_batches=limit)
    assert loader.steps_per_epoch == steps
    found = [x for window in rows(loader.windows(1)) for batch in window for x in batch]
    assert found == list(range(min(2 * limit, 8)))


@pytest.mark.parametrize("length", [2, 4])
def test_a_length_that_is_not_true_is_told(length):
    class Wrong(list):
        def __len__(self):
            return length

    with pytest.raises(DataError, match=f"has {length} steps, but it (ended|goes on) after"):
        list(training(Wrong(batches(1, 1, 1))).windows(0))


class Pair(NamedTuple):
    image: np.ndarray
    label: np.ndarray


@pytest.mark.parametrize(
    ("batch", "fields"),
    [
        ((np.zeros(2), np.ones(2)), {"x": [0, 0], "y": [1, 1]}),
        ([np.zeros(2), np.ones(2)], {"x": [0, 0], "y": [1, 1]}),
        (np.zeros(2), {"x": [0, 0]}),
        (Pair(np.zeros(2), np.ones(2)), {"image": [0, 0], "label": [1, 1]}),
        ({"x": [1, 2], "text": ["a", "b"]}, {"x": [1, 2], "text": ["a", "b"]}),
        (
            {"a": {"b": (np.zeros(2), None)}, "c": [np.ones(2)]},
            {"a": {"b": ([0, 0], None)}, "c": [[1, 1]]},
        ),
    ],
)
def test_fields_are_named_as_those_of_samples(batch, fields):
    def plain(value):
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(plain(item) for item in value)
        return value

    (window,) = training([batch]).windows(0)
    assert plain(window.batches[0].fields) == fields
    assert window.weight == 2.0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3)}, "a batch has x: 2, y: 3; allowed: fields with"),
        ({"x": np.zeros(2), "n": {"size": 2}}, "a batch has x: 2, n.size: 0; allowed"),
        ({"x": np.zeros((0, 3))}, "a batch has x: 0; allowed"),
        ({"text": ["a", "b"]}, "a batch has no arrays; allowed"),
        (None, "a batch has no arrays"),
    ],
)
def test_what_is_no_batch_is_refused(batch, message):
    with pytest.raises(DataError, match=message):
        list(training([batch]).windows(0))


# -- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [2, 3])
def test_each_rank_takes_its_share_of_every_batch(world_size):
    given = batches(4, 1, 3, 2)
    ranks = [
        list(training(given, rank=rank, world_size=world_size, accumulate=2).windows(0))
        for rank in range(world_size)
    ]
    for step, group in enumerate((given[:2], given[2:])):
        for place, whole in enumerate(group):
            shares = [rank[step].batches[place] for rank in ranks]
            assert sorted(x for share in shares for x in kept(share)) == whole["x"].tolist()
            assert len({len(share.indices) for share in shares}) == 1
            for share in shares:
                assert share.fields["x"].tolist() == share.indices.tolist()
                assert share.fields["name"] == [f"s{i}" for i in share.indices]
        assert {rank[step].weight for rank in ranks} == {sum(len(b["x"]) for b in group)}


def test_every_array_of_a_batch_is_cut():
    batch = {"a": {"b": (np.arange(4), Pair(np.arange(4) * 2, np.arange(8).reshape(4, 2)))}}
    (window,) = training([batch], rank=1, world_size=2).windows(0)
    first, pair = window.batches[0].fields["a"]["b"]
    assert first.tolist() == [1, 3]
    assert pair.image.tolist() == [2, 6]
    assert pair.label.tolist() == [[2, 3], [6, 7]]


@pytest.mark.parametrize("count", [1, 4, 5])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("in_step", [False, True])
def test_each_sample_is_evaluated_once(count, world_size, in_step):
    given = batches(*range(1, count + 1))
    ranks = [
        evaluated(given, rank=rank, world_size=world_size, in_step=in_step)
        for rank in range(world_size)
    ]
    found = [x for rank in ranks for batch in rank for x in kept(batch)]
    assert sorted(found) == [x for batch in given for x in batch["x"].tolist()]
    for batch in itertools.chain.from_iterable(ranks):
        assert batch.fields["x"].tolist() == batch.indices.tolist()
    if in_step:
        assert len({len(rank) for rank in ranks}) == 1


def test_an_evaluation_is_limited_in_batches_of_the_loader():
    given = batches(2, 2, 2, 2)
    found = [evaluated(given, rank=rank, world_size=2, limit_batches=3) for rank in (0, 1)]
    assert [[kept(batch) for batch in rank] for rank in found] == [[[0, 1], [4, 5]], [[2, 3]]]


# -- what a loader may be, and what is given beside it --------------------------------------------


def test_a_loader_that_can_be_read_once_only_is_refused():
    with pytest.raises(DataError, match="can be read once only"):
        OwnLoader(iter(batches(2)))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"batch_size": 16}, "data.batch_size"),
        ({"global_batch_size": 8}, "data.global_batch_size"),
        ({"drop_last": True}, "data.drop_last"),
        ({"num_workers": 2}, "data.num_workers"),
        ({"sampler": Sequential()}, "sampler"),
    ],
)
def test_options_that_the_loader_decides_are_refused(options, key):
    with pytest.raises(
        ConfigError, match=f"{key}: has no effect: the training set comes in ready"
    ) as caught:
        Data(OwnLoader(batches(2)), **options)
    assert "allowed: to leave it out" in str(caught.value)


def test_the_size_of_evaluation_batches_is_the_loaders():
    Data(OwnLoader(batches(2)), {"x": np.zeros(3)}, eval_batch_size=2, sampler=Random())
    with pytest.raises(ConfigError, match=r"data\.eval_batch_size: has no effect"):
        Data({"x": np.zeros(3)}, OwnLoader(batches(2)), eval_batch_size=2)


def test_a_collate_function_is_the_loaders():
    with pytest.raises(ConfigError, match=r"data\.collate: has no effect: a loader has its own"):
        Data(OwnLoader(batches(2)), collate=dict)


def test_an_empty_loader_is_refused():
    with pytest.raises(DataError, match="the training set is empty; allowed: at least 1 of its ba"):
        list(training([]).windows(0))


# -- order and randomness -------------------------------------------------------------------------


class Shuffled:
    """Draws the order and the values of each epoch; its parts note the epoch that they are told."""

    def __init__(self, n=8):
        self.n = n
        self.told = []
        self.dataset = self.part("dataset")
        self.sampler = self.part("sampler")
        self.batch_sampler = self.part("batch_sampler", sampler=self.part("inner"))
        del self.batch_sampler.generator

    def part(self, name, **attributes):
        return SimpleNamespace(
            set_epoch=lambda epoch: self.told.append((name, epoch)), generator=None, **attributes
        )

    def set_epoch(self, epoch):
        self.told.append(("loader", epoch))

    def __iter__(self):
        order = list(range(self.n))
        random.shuffle(order)
        for i in range(0, self.n, 2):
            yield {"x": np.array(order[i : i + 2]), "draw": np.random.random(2)}


def test_the_epoch_is_told_to_all_parts():
    source = Shuffled()
    list(training(source).windows(3))
    names = ["loader", "dataset", "sampler", "batch_sampler", "inner"]
    assert source.told == [(name, 3) for name in names]


def test_what_is_drawn_is_a_function_of_seed_and_epoch():
    def seen(epoch, seed):
        windows = list(training(Shuffled(), seed=seed).windows(epoch))
        return rows(windows), rows(windows, "draw")

    assert seen(0, 0) == seen(0, 0)
    assert len({str(seen(epoch, seed)) for epoch in (0, 1) for seed in (0, 1)}) == 4
    np.random.seed(5)
    seen(0, 0)
    found = np.random.random()
    np.random.seed(5)
    assert found == np.random.random()


@pytest.mark.parametrize("start", [1, 2, 3])
def test_without_a_state_batches_are_read_again_and_that_is_said(start, caplog):
    caplog.set_level("INFO", "expkit")
    whole = rows(training(Shuffled()).windows(2), "draw")
    assert rows(training(Shuffled()).windows(2, start), "draw") == whole[start:]
    assert caplog.messages == [
        f"the training set: its state is not kept, so {start} batches are read again to come to "
        f"step {start} of epoch 3"
    ]


def test_a_distributed_sampler_of_ones_own_is_refused():
    source = Shuffled()
    vars(source.sampler).update(num_replicas=2, rank=0)
    with pytest.raises(DataError, match="not known whether each rank gets equally many"):
        training(source, rank=0, world_size=2)
