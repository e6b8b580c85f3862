from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.errors import DataError
from expkit.data import ArrayDataset, Data, ItemDataset
from expkit.data import loader as module


class Recorder:
    """The integers from 0 on; remembers which were read."""

    def __init__(self, n):
        self.n, self.reads = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.reads.append(i)
        return {"x": i}


def flat(windows):
    return [b for window in windows for b in window.batches]


def indices(windows):
    return [b.indices.tolist() for b in flat(windows)]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    batch=st.integers(1, 9),
    accumulate=st.integers(1, 3),
    world_size=st.integers(1, 3),
    data=st.data(),
)
def test_starting_in_the_middle_gives_the_rest_of_the_epoch(n, batch, accumulate, world_size, data):
    rank = data.draw(st.integers(0, world_size - 1))
    loader = Data(ArrayDataset({"x": np.arange(n)}), batch_size=batch).train_loader(
        rank=rank, world_size=world_size, accumulate=accumulate
    )
    start = data.draw(st.integers(0, loader.steps_per_epoch))
    whole = [indices([window]) for window in loader.windows(3)]
    assert [indices([window]) for window in loader.windows(3, start)] == whole[start:]
    for batch_ in flat(loader.windows(3)):
        assert batch_.fields["x"].tolist() == batch_.indices.tolist()


def test_resuming_reads_only_what_is_still_to_train():
    source = Recorder(1000)
    loader = Data(source, batch_size=10).train_loader()
    remaining = indices(loader.windows(0, 95))
    assert sorted(source.reads) == sorted(itertools.chain.from_iterable(remaining))
    assert len(source.reads) == 50


def test_samples_that_come_one_by_one_are_read_when_it_is_their_turn():
    source = Recorder(100)
    windows = Data(source, batch_size=5).train_loader().windows(0)
    next(windows)
    assert len(source.reads) == 5
    next(windows)
    assert len(source.reads) == 10


def test_arrays_and_items_give_the_same_batches():
    n = 333
    arrays = Data({"x": np.arange(n)}, batch_size=8).train_loader(accumulate=2)
    items = Data(Recorder(n), batch_size=8).train_loader(accumulate=2)
    for a, b in zip(flat(arrays.windows(1)), flat(items.windows(1)), strict=True):
        assert a.indices.tolist() == b.indices.tolist() == a.fields["x"].tolist()
        assert a.fields["x"].tolist() == b.fields["x"].tolist()


def test_rows_too_large_to_gather_give_the_same_batches(monkeypatch):
    data = Data({"x": np.arange(500)}, batch_size=7)
    gathered = indices(data.train_loader(accumulate=3).windows(0))
    monkeypatch.setattr(module, "_READ_BYTES", 8)
    assert indices(data.train_loader(accumulate=3).windows(0)) == gathered


def test_kept_batches_are_never_written_again():
    data = Data({"x": np.arange(5000).reshape(-1, 1)}, batch_size=10)
    loader = data.train_loader()
    kept = flat(loader.windows(0)) + flat(loader.windows(1))
    for batch in kept:
        assert batch.fields["x"][:, 0].tolist() == batch.indices.tolist()


def test_writing_to_a_batch_changes_neither_data_nor_other_batches():
    x = np.ones((100, 2))
    data = Data({"x": x}, {"x": x}, batch_size=10)
    for batch in flat(data.train_loader().windows(0)):
        assert batch.fields["x"].min() == 1
        batch.fields["x"][:] = 0
    for batch in data.eval_loaders()[""].batches():
        assert batch.fields["x"].min() == 1
        batch.fields["x"][:] = 0
    assert x.min() == 1


def test_text_fields_stay_lists_in_batches_of_arrays():
    data = Data({"text": [str(i) for i in range(50)]}, batch_size=4)
    for batch in flat(data.train_loader().windows(0)):
        assert batch.fields["text"] == [str(i) for i in batch.indices]


@pytest.mark.parametrize("n", [512, 97, 99, 33, 32, 1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_evaluation_counts_each_sample_once_in_order(n, world_size):
    data = Data(None, {"x": np.arange(n)}, eval_batch_size=16)
    seen = []
    for rank in range(world_size):
        for batch in data.eval_loaders(rank=rank, world_size=world_size)[""].batches():
            assert batch.weights is None
            assert 0 < batch.size == len(batch.indices) <= 16
            seen += batch.fields["x"].tolist()
    assert seen == list(range(n))


@pytest.mark.parametrize("n", [97, 33, 3, 1])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_that_evaluate_in_step_have_equally_many_batches(n, world_size):
    data = Data(None, {"x": np.arange(n)}, eval_batch_size=16)
    by_rank = [
        list(data.eval_loaders(rank=rank, world_size=world_size, in_step=True)[""].batches())
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in by_rank}) == 1
    assert sum(batch.size for batches in by_rank for batch in batches) == n
    fillers = [b for batches in by_rank for b in batches if b.weights is not None]
    assert all(b.weights.tolist() == [0.0] for b in fillers)


def test_evaluation_can_be_repeated():
    loader = Data(None, {"x": np.arange(10)}).eval_loaders()[""]
    assert [b.indices.tolist() for b in loader.batches()] == [list(range(10))]
    assert [b.indices.tolist() for b in loader.batches()] == [list(range(10))]


class Own:
    """A data set with a fetch of its own, that gives what it was made with."""

    def __init__(self, answer):
        self.answer = answer

    def __len__(self):
        return 4

    def fetch(self, indices):
        return self.answer(indices)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda i: i, "gave a ndarray for a batch; allowed: a dict"),
        (lambda i: {"x": i[:1]}, r"'x' has shape \(1,\) for 4 samples"),
        (lambda i: {"x": np.array(1)}, r"'x' has shape \(\) for 4 samples"),
        (lambda i: 1 / 0, r"samples \[.*\] cannot be read: ZeroDivisionError"),
    ],
)
def test_data_sets_that_give_no_batch_are_named(answer, message):
    loader = Data(Own(answer), batch_size=4).train_loader()
    with pytest.raises(DataError, match=message):
        next(loader.windows(0))


def test_error_of_an_item_keeps_its_index_through_the_loader():
    class Bad(Recorder):
        def __getitem__(self, i):
            raise KeyError("gone")

    loader = Data(ItemDataset(Bad(1)), batch_size=1).train_loader()
    with pytest.raises(DataError, match="sample 0 cannot be read: KeyError"):
        next(loader.windows(0))


def test_a_batch_of_arrays_costs_microseconds():
    data = Data({"x": np.zeros((1437, 64), np.float32), "y": np.zeros(1437, np.int64)})
    loader = data.train_loader()
    seconds = []
    for epoch in range(20):
        started = time.perf_counter()
        for _ in loader.windows(epoch):
            pass
        seconds.append((time.perf_counter() - started) / loader.steps_per_epoch)
    assert min(seconds) < 50e-6  # about 6e-6 on an idle core
