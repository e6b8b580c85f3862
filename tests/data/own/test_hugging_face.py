"""Streams and dicts of Hugging Face's."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import DataError
from expkit.data import Data
from expkit.data.splits import Splits, as_splits

datasets = pytest.importorskip("datasets")


def samples(n=20):
    return datasets.Dataset.from_dict({"x": list(range(n))})


def stream(**options):
    return samples().to_iterable_dataset().shuffle(buffer_size=5, **options)


def mixed(**options):
    parts = [samples().to_iterable_dataset() for _ in range(2)]
    return datasets.interleave_datasets(parts, probabilities=[0.5, 0.5], **options)


def in_loader(given):
    return pytest.importorskip("torch.utils.data").DataLoader(given, batch_size=4)


@pytest.mark.parametrize(
    "make",
    [
        stream,
        mixed,
        lambda: stream(generator=np.random.default_rng()),
        lambda: stream().map(lambda sample: sample).take(3),
        lambda: in_loader(stream()),
    ],
)
def test_a_shuffle_without_a_seed_is_refused(make):
    """It draws one when it is made: another in each run, also in one that resumes."""
    for sets in ({"train": make()}, {"train": None, "eval": make()}):
        with pytest.raises(DataError, match="set is shuffled without a seed") as caught:
            Data(**sets)
        assert ".shuffle(seed=...)" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: stream(seed=0),
        lambda: stream(seed=2**63),
        lambda: mixed(seed=3),
        lambda: stream(generator=np.random.default_rng(5)),
    ],
)
def test_a_shuffle_with_a_seed_is_the_same_each_time(make):
    orders = []
    for _ in range(2):
        windows = Data(make()).train_loader().windows(1)
        orders.append([x for w in windows for batch in w.batches for x in batch.fields["x"]])
    assert orders[0] == orders[1]


def test_a_dict_of_splits_is_refused_and_the_way_to_give_it_named():
    given = datasets.DatasetDict(train=samples(), test=samples(), validation=samples())
    message = r'{"train": d\["train"\], "eval": d\["validation"\]}'
    for take in (as_splits, Data, lambda splits: Data(Splits(splits).train)):
        with pytest.raises(DataError, match=message):
            take(given)
    given.pop("validation")
    with pytest.raises(DataError, match=r'"eval": d\["test"\]'):
        as_splits(given)


def test_a_dict_of_one_split_is_that_set():
    given = datasets.DatasetDict(train=samples())
    assert as_splits(given).train is given["train"]
    assert len(Data(given).train) == 20
