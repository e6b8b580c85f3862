from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Data, Splits, as_splits

X = {"x": np.arange(100)}


def train_indices(data, epoch, **options):
    windows = data.train_loader(**options).windows(epoch)
    return [b.indices.tolist() for window in windows for b in window.batches]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"data\.batch_size: is 0; allowed: an integer of at least 1  \(try:"),
        ({"batch_size": -3}, "is -3"),
        ({"batch_size": 2.5}, "is 2.5"),
        ({"batch_size": True}, "is True"),
        ({"global_batch_size": 0}, "data.global_batch_size: is 0"),
        ({"eval_batch_size": 0}, "data.eval_batch_size: is 0"),
        ({"num_workers": 2.0}, r"data\.num_workers: is 2\.0; allowed: an integer of at least 0"),
        ({"num_workers": True}, r"data\.num_workers: is True"),
        ({"num_workers": -1}, r"data\.num_workers: is -1"),
        ({"num_workers": 1, "prefetch": 0}, r"data\.prefetch: is 0; allowed: an integer of"),
        ({"collate": {"pad": {}}}, r"data\.collate: is a dict; allowed: expkit\.data\.Collate"),
        ({"sampler": [0, 1]}, r"sampler: is a list; allowed: a subclass of expkit\.data\.Sampler"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Data(X, **options)


def test_all_wrong_options_are_named_at_once():
    with pytest.raises(ConfigError) as error:
        Data(X, batch_size=0, eval_batch_size=0, num_workers=-1)
    assert len(error.value.problems) == 3


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"accumulate": 0}, "trainer.accumulate"),
        ({"limit_batches": 0}, "trainer.limit_train_batches"),
        ({"overfit_batches": -1}, "trainer.overfit_batches"),
    ],
)
def test_limits_that_cannot_work_are_refused(options, key):
    with pytest.raises(ConfigError, match=key):
        Data(X).train_loader(**options)


def test_empty_sets_are_refused_by_name():
    with pytest.raises(DataError, match="the training set is empty"):
        Data({"x": np.zeros(0)})
    with pytest.raises(DataError, match="the evaluation set dev is empty"):
        Data(X, {"dev": {"x": np.zeros(0)}})


def test_several_evaluation_sets_keep_their_names():
    data = Data(X, {"dev": {"x": np.arange(3)}, "test": [1, 2]})
    assert {name: len(one) for name, one in data.eval.items()} == {"dev": 3, "test": 2}
    assert list(data.eval_loaders()) == ["dev", "test"]


def test_one_evaluation_set_has_the_empty_name_and_none_is_none():
    assert list(Data(X, X).eval_loaders()) == [""]
    assert Data(X).eval_loaders() == Data(X, {}).eval_loaders() == {}
    assert list(Data(X, [1, 2]).eval_loaders()) == [""]


def test_data_without_a_training_set_evaluates_and_refuses_to_train():
    data = Data(None, X)
    assert sum(b.size for b in data.eval_loaders()[""].batches()) == 100
    message = r"there is no training set: data\.source gave none"
    with pytest.raises(DataError, match=message) as caught:
        data.train_loader()
    assert "task=evaluate" in str(caught.value)
    assert "task=predict" in str(caught.value)


@pytest.mark.parametrize("key", ["batch_size", "num_workers", "prefetch"])
def test_counts_may_not_be_left_open(key):
    with pytest.raises(ConfigError, match=rf"data\.{key}: is null; allowed: an integer  \(try: da"):
        Data(X, **{key: None})


class Told:
    """Says that it has this length."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"x": index}


@pytest.mark.parametrize("length", [-1, 2.5, None, "a"])
def test_a_set_whose_length_is_none_is_named(length):
    for what, sets in (("training", [Told(length)]), ("evaluation", [None, Told(length)])):
        with pytest.raises(
            DataError, match=f"the {what} set, of type Told, has no length: "
        ) as caught:
            Data(*sets)
        assert "allowed: __len__ that gives the number of samples" in str(caught.value)


def test_evaluation_batches_are_at_least_256_and_never_smaller_than_training_batches():
    large = {"x": np.arange(1000)}
    for batch_size, expected in ((32, 256), (300, 300)):
        loader = Data(large, large, batch_size=batch_size).eval_loaders()[""]
        assert len(next(loader.batches()).indices) == expected


def test_limit_of_evaluation_batches_counts_the_batches_of_each_rank():
    data = Data(None, X, eval_batch_size=8)
    sizes = [
        [
            len(b.indices)
            for b in data.eval_loaders(rank=r, world_size=2, limit_batches=2)[""].batches()
        ]
        for r in (0, 1)
    ]
    assert sizes == [[8, 8], [8, 8]]


def test_overfitting_repeats_the_first_batches_and_evaluates_on_them():
    data = Data(X, {"dev": {"x": np.arange(7)}}, batch_size=4)
    first = train_indices(data, 0, overfit_batches=2)
    assert first == train_indices(data, 5, overfit_batches=2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loaders = data.eval_loaders(overfit_batches=2)
    assert list(loaders) == ["dev"]
    assert [b.indices.tolist() for b in loaders["dev"].batches()] == [list(range(8))]
    assert list(Data(X).eval_loaders(overfit_batches=1)) == [""]


def test_overfitting_covers_the_same_samples_on_two_ranks():
    data = Data(X, batch_size=4)
    trained = sorted(
        index
        for rank in (0, 1)
        for batch in train_indices(data, 0, overfit_batches=2, rank=rank, world_size=2)
        for index in batch
    )
    evaluated = [
        index
        for rank in (0, 1)
        for batch in data.eval_loaders(overfit_batches=2, rank=rank, world_size=2)[""].batches()
        for index in batch.indices.tolist()
    ]
    assert trained == evaluated == list(range(16))


def test_seed_of_the_run_decides_the_order():
    data = Data(X)
    assert train_indices(data, 0, seed=1) == train_indices(data, 0, seed=1)
    assert train_indices(data, 0, seed=1) != train_indices(data, 0, seed=2)


def test_two_loaders_of_one_data_do_not_disturb_each_other():
    data = Data(X)
    first = data.train_loader(seed=1)
    expected = [b.indices.tolist() for w in first.windows(0) for b in w.batches]
    data.train_loader(seed=2)
    assert [b.indices.tolist() for w in first.windows(0) for b in w.batches] == expected


def test_splits_are_taken_in_each_form_that_a_source_returns():
    splits = Splits(X, X)
    assert as_splits(splits) is splits
    for source in ({"train": X, "eval": X}, (X, X)):
        assert as_splits(source) == splits
    assert as_splits({"train": X}).eval is None
    with pytest.raises(DataError, match="gave dict with the keys train, valid; allowed"):
        as_splits({"train": X, "valid": X})
    with pytest.raises(DataError, match="gave NoneType; allowed"):
        as_splits(None)
