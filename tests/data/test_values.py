"""What samplers may be told of the samples, and what they say when it is nothing of the kind."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Bucketed, Collate, Data, ItemDataset, Mixed, Pad, Sampler, Weighted
from expkit.data.sampler import Sorted

ARRAYS = {"x": np.arange(6), "y": np.arange(6) % 2}
ITEMS = [{"x": i, "text": "ab"[i % 2] * (i + 1), "row": [1] * (i + 1)} for i in range(6)]


def items():
    return ItemDataset(ITEMS, Collate(pad={"row": Pad()}))


def order(sampler, samples=ARRAYS):
    loader = Data(samples, sampler=sampler, batch_size=2).train_loader()
    return [i for w in loader.windows(0) for b in w.batches for i in b.indices.tolist()]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted(weights=[[1], [2, 3]]), "sampler.weights is no list of numbers"),
        (lambda: Weighted(weights=3), "sampler.weights is 3, which gives int64 values; allowed"),
        (lambda: Weighted(weights=["a"] * 6), "sampler.weights gives text; allowed: one number"),
        (lambda: Weighted(weights=[2**70] * 6), "sampler.weights gives object values; allowed"),
        (lambda: Bucketed(lengths=[[1], [2, 3]]), "sampler.lengths is no list of numbers"),
        (lambda: Bucketed(by=lambda sample: 1 / 0), "sampler.by failed at sample 0: ZeroDiv"),
        (lambda: Bucketed(by=lambda sample: [1]), r"sampler.by gave \[1\] for sample 0; allowed"),
        (lambda: Bucketed(by=lambda sample: None), "sampler.by gave None for sample 0; allowed"),
        (lambda: Sorted(by=lambda sample: 10**400), "that float64 can hold"),
    ],
)
def test_what_gives_no_number_per_sample_is_named(make, message):
    with pytest.raises(DataError, match=message):
        order(make())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bucketed(by=3), "sampler.by: is 3; allowed: the name of a field, or a function"),
        (lambda: Sorted(by=None), "sampler.by: is None; allowed: the name of a field"),
        (lambda: Weighted(by=["y"]), r"sampler.by: is \['y'\]; allowed: the name of a field  \("),
        (lambda: Weighted(by="y", replacement="no"), "sampler.replacement: is 'no'; allowed: true"),
        (lambda: Sorted(by="y", descending="no"), "sampler.descending: is 'no'; allowed: true"),
        (lambda: Mixed("in_turn", shuffle="no"), "sampler.shuffle: is 'no'; allowed: true"),
        (lambda: Mixed(length="most", ratio={"a": 10**400}), "sampler.ratio: is .*; allowed"),
    ],
)
def test_options_of_another_type_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("sampler", [Weighted(by="text"), Bucketed(by="text")])
def test_texts_in_samples_are_classes_and_have_a_length(sampler):
    texts = {"text": [item["text"] for item in ITEMS]}
    assert order(sampler, items()) == order(sampler, texts)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Sorted(by="text"), "sampler.by='text' gives text; allowed: one number per sample"),
        (Weighted(weights="text"), "sampler.weights='text' gives text; allowed: one number"),
        (Sorted(by="row"), "sampler.by='row' gives int64 values of shape"),
        (Weighted(by="absent"), "sampler.by='absent': the data set has no field 'absent'; allowed"),
    ],
)
def test_a_field_that_does_not_do_is_named(sampler, message):
    with pytest.raises(DataError, match=message):
        order(sampler, items())


def test_rows_of_different_lengths_are_no_values():
    rows = ItemDataset([{"x": [0] * (1 + i // 256)} for i in range(512)])
    with pytest.raises(DataError, match=r"sampler\.by='x' has rows of different lengths"):
        order(Sorted(by="x"), rows)
    with pytest.raises(DataError, match=r"sampler\.by='x' has rows of different lengths"):
        order(Sorted(by="x"), ItemDataset([{"x": {1}}]))


class Told(Sampler):
    """Says that it has this length."""

    def __init__(self, length):
        self._length = length

    def prepare(self, dataset, seed, step_size):
        pass

    @property
    def length(self):
        return self._length

    def indices(self, epoch, start, stop):
        return np.arange(start, stop)


@pytest.mark.parametrize("length", [-1, 2.5, None, "a", True])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises(ConfigError, match=f"Told.length is {length!r}; allowed: an integer of at"):
        order(Told(length))


def test_a_length_may_be_of_numpy():
    assert order(Told(np.int64(6))) == list(range(6))
