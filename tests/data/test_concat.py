from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from expkit.core.content import compared_rows, content_of, single_sets_of
from expkit.core.errors import ConfigError, DataError
from expkit.core.preflight import check_same_data
from expkit.data import (
    ArrayDataset,
    Bucketed,
    Collate,
    ConcatDataset,
    Data,
    ItemDataset,
    Mixed,
    Pad,
)
from expkit.data.ragged import Ragged
from expkit.data.reading import read


class Asked:
    """Gives its indices, and remembers how it was asked."""

    def __init__(self, length, make=lambda indices: {"x": indices}):
        self.length, self.make, self.calls = length, make, []

    def __len__(self):
        return self.length

    def fetch(self, indices):
        self.calls.append(indices.tolist())
        return self.make(indices)


def two(make_a, make_b=None):
    return ConcatDataset({"a": Asked(3, make_a), "b": Asked(4, make_b or make_a)})


ALL = np.array([6, 0, 3, 3, 2])


def test_each_set_is_asked_once_and_rows_are_put_back_in_order():
    data = ConcatDataset({"a": Asked(3), "b": Asked(4), "c": Asked(2)})
    assert (len(data), data.offsets.tolist()) == (9, [0, 3, 7, 9])
    assert data.fetch(np.array([7, 0, 4, 8, 0]))["x"].tolist() == [0, 0, 1, 1, 0]
    assert [part.calls for part in data.parts.values()] == [[[0, 0]], [[1]], [[0, 1]]]
    data.fetch(np.array([5, 4]))
    assert [len(part.calls) for part in data.parts.values()] == [1, 2, 1]


class Pair(NamedTuple):
    left: object
    right: object


@dataclass(frozen=True)
class Inputs:
    tokens: object


def test_fields_are_merged_whatever_they_are_nested_in():
    def make(shift):
        return lambda i: {
            "image": np.stack([i + shift, -i - shift], 1).astype(np.float32),
            "text": [f"t{index + shift}" for index in i.tolist()],
            "nested": {"pair": Pair(i + shift, (i + shift, None)), "none": None},
            "inputs": Inputs(i + shift),
        }

    batch = two(make(0), make(3)).fetch(ALL)
    assert batch["image"].tolist() == [[6, -6], [0, 0], [3, -3], [3, -3], [2, -2]]
    assert batch["image"].dtype == np.float32
    assert batch["text"] == ["t6", "t0", "t3", "t3", "t2"]
    assert batch["nested"]["pair"].left.tolist() == ALL.tolist()
    assert batch["nested"]["pair"].right[0].tolist() == ALL.tolist()
    assert batch["nested"]["none"] is batch["nested"]["pair"].right[1] is None
    assert isinstance(batch["inputs"], Inputs)
    assert batch["inputs"].tokens.tolist() == ALL.tolist()


def test_tensors_of_a_framework_become_arrays():
    torch = pytest.importorskip("torch")
    batch = two(lambda i: {"x": torch.from_numpy(i) + 0.5}).fetch(ALL)
    assert batch["x"].tolist() == [3.5, 0.5, 0.5, 0.5, 2.5]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            lambda i: {"x": i, "y": i},
            lambda i: {"x": i},
            r"a sample is {x, y} in training set 'a' and {x} in 'b'",
        ),
        (
            lambda i: {"x": np.zeros((len(i), 5))},
            lambda i: {"x": np.zeros((len(i), 7))},
            r"field 'x' is float64 of shape \(5,\) in .*'a' and float64 of shape \(7,\) in 'b'",
        ),
        (
            lambda i: {"x": i},
            lambda i: {"x": i.astype(np.float32)},
            r"field 'x' is int64 of shape \(\) in training set 'a' and float32 of shape",
        ),
        (
            lambda i: {"n": {"x": i}},
            lambda i: {"n": {"x": i.tolist()}},
            r"field 'n\.x' is an array in training set 'a' and a list in 'b'",
        ),
        (
            lambda i: {"x": (i, i)},
            lambda i: {"x": (i,)},
            r"field 'x' is a tuple of 2 in training set 'a' and a tuple of 1 in 'b'",
        ),
        (lambda i: {"x": object()}, None, r"field 'x' is a object for a whole batch"),
    ],
)
def test_what_does_not_fit_into_one_batch_is_named(one, other, message):
    with pytest.raises(DataError, match=message):
        two(one, other).fetch(ALL)


def test_sets_in_memory_are_compared_before_anything_is_read():
    a = ArrayDataset({"x": np.zeros((3, 2)), "t": ["a", "b", "c"]})
    assert len(ConcatDataset({"a": a, "b": a})) == 6
    for other, message in (
        ({"x": np.zeros((3, 2))}, r"a sample is {t, x} in training set 'a' and {x} in 'b'"),
        ({"x": np.zeros((3, 4)), "t": ["a"] * 3}, r"field 'x' is float64 of shape \(2,\)"),
        ({"x": np.zeros((3, 2)), "t": np.zeros(3)}, r"field 't' is a list .* an array in 'b'"),
    ):
        with pytest.raises(DataError, match=message):
            ConcatDataset({"a": a, "b": ArrayDataset(other)})


def test_an_error_names_the_set():
    data = ConcatDataset({"a": Asked(3), "b": ItemDataset([{"x": 1}, {"y": 2}])})
    with pytest.raises(DataError, match=r"training set 'b': samples \[0, 1\] cannot be collated"):
        data.fetch(np.array([3, 4]))


def sequences(*lengths):
    return [{"x": [length] * length} for length in lengths]


def test_one_collate_function_pads_across_the_sets():
    collate = Collate({"x": Pad(value=-1)})
    train = {"short": sequences(1, 2), "long": sequences(4, 3)}
    data = Data(train, batch_size=4, collate=collate)
    assert data.train.fetch(np.array([2, 0]))["x"].tolist() == [[4, 4, 4, 4], [1, -1, -1, -1]]
    apart = Data({name: ItemDataset(one, collate) for name, one in train.items()})
    with pytest.raises(DataError, match=r"\(1,\) in training set 'short' .* with data\.collate"):
        apart.train.fetch(np.array([2, 0]))
    with pytest.raises(ConfigError, match=r"data\.collate: has no effect"):
        Data({"a": train["short"], "b": {"x": np.zeros(3)}}, collate=collate)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_different_lengths_are_padded_across_the_sets(side):
    pad = Pad(value=-1, side=side, multiple=3, mask="is_real")
    rows = [[1], [2, 3, 4, 5], [6, 7], [8, 9, 10], [11]]
    whole = ArrayDataset({"x": Ragged.of(rows, pad), "y": np.arange(5)})
    parts = {
        "a": ArrayDataset({"x": Ragged.of(rows[:2], pad), "y": np.arange(2)}),
        "b": ArrayDataset({"x": Ragged.of(rows[2:], pad), "y": np.arange(2, 5)}),
    }
    data = Data(parts).train
    for indices in ([3, 0], [1, 4, 0, 2], [2, 3], [4, 1]):
        expected, found = whole.fetch(np.array(indices)), data.fetch(np.array(indices))
        assert found.keys() == expected.keys() == {"x", "y", "is_real"}
        for name in expected:
            assert found[name].tolist() == expected[name].tolist()
            assert found[name].dtype == expected[name].dtype
    sampler = Bucketed("x", batches_per_bucket=1).bind(data, 0, 2)
    assert {0, 4} in [set(sampler.indices(0, start, start + 2).tolist()) for start in (0, 2)]


def test_what_is_drawn_for_a_sample_does_not_depend_on_the_others():
    class Noisy:
        def __init__(self, length):
            self.length = length

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            return {"x": random.random()}

    data = ConcatDataset({"a": ItemDataset(Noisy(3)), "b": ItemDataset(Noisy(4))})
    assert data.draws
    before = random.getstate()
    whole = read(data, ALL)["x"]
    assert random.getstate() == before
    for index, value in zip(ALL.tolist(), whole.tolist(), strict=True):
        assert read(data, np.array([index]))["x"].tolist() == [value]
    assert len(set(whole.tolist())) == 4


def test_a_mapping_of_sets_is_several_and_a_mapping_of_columns_is_one():
    one = {"x": np.zeros(3), "y": [1, 2, 3]}
    assert isinstance(Data(one).train, ArrayDataset)
    several = Data({"a": one, "b": [{"x": 0.0, "y": 1}], "c": Asked(2)}).train
    assert isinstance(several, ConcatDataset)
    assert [type(part) for part in several.parts.values()] == [ArrayDataset, ItemDataset, Asked]
    assert len(Data({"a": one}).train.parts) == 1
    with pytest.raises(DataError, match="the training set b is empty"):
        Data({"a": one, "b": {"x": np.zeros(0), "y": []}})
    with pytest.raises(DataError, match="field 'meta' is dict"):
        Data({"x": np.zeros(3), "meta": {"id": np.zeros(3)}})


def test_content_of_sets_in_memory_is_seen():
    def data(y):
        x = np.zeros((3, 2))
        return Data({"a": {"x": x, "y": np.zeros(3)}, "b": {"x": x, "y": np.full(3, y)}})

    one, other = data(1.0), data(2.0)
    assert list(compared_rows(one.train)) == ["a/x", "a/y", "b/x", "b/y"]
    assert content_of(one.train)[0] == 6
    assert content_of(one.train) == content_of(data(1.0).train)
    assert list(single_sets_of(one)) == ["the training set a", "the training set b"]

    class TwoRanks:
        world_size = 2

        def all_gather(self, own):
            return [own, (content_of_all(other), own[1])]

    def content_of_all(given):
        return {"the training set": content_of(given.train)}

    with pytest.raises(DataError, match="rank 1 has other values of b/y than rank 0"):
        check_same_data(TwoRanks(), one.train_loader(), one)


def test_other_samplers_see_the_sets_one_after_the_other():
    data = Data({"a": {"x": np.arange(3)}, "b": {"x": np.arange(10, 14)}}, batch_size=7)
    (window,) = data.train_loader().windows(0)
    assert sorted(window.batches[0].fields["x"].tolist()) == [0, 1, 2, 10, 11, 12, 13]
    steps = Data(
        {"a": {"x": np.arange(3)}, "b": {"x": np.arange(10, 14)}},
        batch_size=2,
        sampler=Mixed("in_turn", shuffle=False),
    ).train_loader()
    read_in = [window.batches[0].fields["x"].tolist() for window in steps.windows(0)]
    assert read_in == [[0, 1], [10, 11], [12, 13], [2]]


def test_no_set_at_all_is_refused():
    with pytest.raises(DataError, match="no set to put together"):
        ConcatDataset({})
