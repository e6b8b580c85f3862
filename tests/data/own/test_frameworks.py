"""Loaders of torch, torchdata and Paddle, as somebody brings them along."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from expkit.core.errors import DataError
from expkit.data import Data

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated", "ignore:.*fork.*:"),
]

FRAMEWORKS = ["torch", "paddle", "stateful"]


def kept(batch, field="x"):
    return batch.fields[field].tolist()


def rows(windows, field="x"):
    return [[kept(batch, field) for batch in window.batches] for window in windows]


class Noisy:
    """Samples with noise; one of them may be broken."""

    def __init__(self, n=10, draws=True, broken=None):
        self.n, self.draws, self.broken = n, draws, broken

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index == self.broken:
            raise ValueError("a torn page")
        noise = np.random.random() + random.random() if self.draws else 0.0
        deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return {"x": index, "noise": noise, "pid": os.getpid(), "deaf": deaf}


def make_loader(framework, samples=None, **options):
    samples = Noisy() if samples is None else samples
    options = {"batch_size": 3, "shuffle": True, **options}
    if framework == "torch":
        return pytest.importorskip("torch.utils.data").DataLoader(samples, **options)
    if framework == "paddle":
        paddle = pytest.importorskip("paddle")

        class Set(paddle.io.Dataset):
            def __len__(self):
                return len(samples)

            def __getitem__(self, index):
                return samples[index]

        return paddle.io.DataLoader(Set(), **options)
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(
        samples, **options
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_a_framework_gives_what_it_gives(framework, workers):
    data = Data(make_loader(framework, num_workers=workers))
    loader = data.train_loader(accumulate=2)
    assert loader.steps_per_epoch == 2
    windows = list(loader.windows(0))
    assert [[len(batch.indices) for batch in w.batches] for w in windows] == [[3, 3], [3, 1]]
    assert sorted(x for w in rows(windows) for batch in w for x in batch) == list(range(10))
    assert all(type(value) is np.ndarray for value in windows[0].batches[0].fields.values())
    pids = {pid for window in rows(windows, "pid") for batch in window for pid in batch}
    assert (pids == {os.getpid()}) == (workers == 0)
    assert rows(loader.windows(0)) == rows(windows) != rows(loader.windows(1))
    assert not multiprocessing.active_children()
    data.close()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}]
)
@pytest.mark.parametrize("start", [1, 3])
def test_a_run_goes_on_where_it_stood(framework, options, start, caplog):
    """With all that is drawn; torchdata does not bring back what its workers have drawn."""
    caplog.set_level("INFO", "expkit")
    has_state = framework == "stateful"
    draws = not (has_state and options)

    def loader():
        made = make_loader(framework, Noisy(draws=draws), **options)
        return Data(made).train_loader(seed=7)

    def seen(windows):
        return [(kept(b), kept(b, "noise")) for window in windows for b in window.batches]

    first = loader()
    whole = seen(loader().windows(2))
    windows = first.windows(2)
    before = seen(itertools.islice(windows, start))
    state = first.state()
    windows.close()
    assert bool(state) == has_state
    caplog.clear()
    second = loader()
    second.load_state(state)
    assert before + seen(second.windows(2, start)) == whole
    told = [message for message in caplog.messages if "are read again" in message]
    assert len(told) == (not has_state)
    assert seen(second.windows(3)) == seen(loader().windows(3))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_run_of_which_a_part_is_trained_leaves_no_workers(framework, is_closed):
    data = Data(make_loader(framework, num_workers=2))
    windows = data.train_loader().windows(0)
    next(windows)
    assert len(multiprocessing.active_children()) == 2
    if is_closed:
        data.close()
    else:
        windows.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_the_data_set_surfaces_with_its_own_message(framework, workers):
    samples = Noisy(broken=7)
    made = make_loader(framework, samples, num_workers=workers, shuffle=False)
    is_early = framework == "paddle" and workers  # what its workers have read before is lost
    number = r"\d" if is_early else "2"
    message = f"the training set, after {number} batches, cannot be read: ValueError: "
    with pytest.raises(DataError, match=message) as caught:
        list(Data(made).train_loader().windows(0))
    assert "a torn page" in str(caught.value)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_loader_may_be_evaluated_while_it_is_trained(framework, options):
    """As overfitting does."""
    data = Data(make_loader(framework, **options))
    loader = data.train_loader(overfit_batches=3)
    straight = rows(loader.windows(0))
    found = []
    for window in loader.windows(0):
        found += rows([window])
        evaluated = data.eval_loaders(overfit_batches=3)[""].batches()
        assert [kept(batch) for batch in evaluated] == [batch for (batch,) in straight]
    assert found == straight
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_workers_do_not_hear_ctrl_c(framework):
    """It stops a run after its step, whose workers must live that long."""
    loader = Data(make_loader(framework, num_workers=1)).train_loader()
    assert rows(loader.windows(0), "deaf")[0][0] == [True, True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Collecting(Noisy):
    def __getitem__(self, index):
        gc.collect()
        return {"x": index}


class Threaded:
    """Garbage that must not be freed in another process: whose threads are not there."""

    def __init__(self, freed):
        self.freed, self.itself, self.pid = freed, self, os.getpid()

    def __del__(self):
        if os.getpid() != self.pid:
            self.freed.touch()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_workers_do_not_free_what_their_parent_has_left(framework, tmp_path):
    """Paddle's iterator waits for its threads when it is freed: in a forked worker for ever."""
    gc.collect()
    gc.disable()
    try:
        Threaded(tmp_path / "freed")
        loader = Data(make_loader(framework, Collecting(), num_workers=1)).train_loader()
        assert len(list(loader.windows(0))) == 4
    finally:
        gc.enable()
    assert not (tmp_path / "freed").exists()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_persistent_workers_begin_anew_and_that_is_said(framework, caplog):
    caplog.set_level("INFO", "expkit")
    made = make_loader(framework, num_workers=1, persistent_workers=True)
    loader = Data(made).train_loader()
    pids = [rows(loader.windows(epoch), "pid")[0][0][0] for epoch in (0, 1)]
    assert pids[0] != pids[1]
    assert "the training set: persistent_workers is left out" in caplog.messages[0]


def test_what_torchdata_calls_and_torch_deprecates_is_no_warning_of_a_run():
    pytest.importorskip("torchdata.stateful_dataloader")
    lines = (
        "import warnings, expkit.data",
        "from torchdata.stateful_dataloader import StatefulDataLoader",
        "list(StatefulDataLoader([1, 2]))",
        "warnings.warn('another')",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "UserWarning: another" in done.stderr
    assert "set_vital" not in done.stderr


@pytest.mark.parametrize("framework", ["torch", "stateful"])
def test_a_generator_of_its_own_is_seeded(framework):
    torch = pytest.importorskip("torch")

    def seen(epoch, seed=0):
        made = make_loader(framework, generator=torch.Generator())
        return rows(Data(made).train_loader(seed=seed).windows(epoch))

    assert seen(2) == seen(2)
    assert len({str(seen(epoch, seed)) for epoch in (0, 1) for seed in (0, 1)}) == 4


def test_a_length_of_an_iterable_set_is_an_estimate():
    data = pytest.importorskip("torch.utils.data")

    class Numbers(data.IterableDataset):
        def __len__(self):
            return 99

        def __iter__(self):
            yield from ({"x": i} for i in range(4))

    loader = Data(data.DataLoader(Numbers(), batch_size=2)).train_loader()
    assert loader.steps_per_epoch is None
    assert [window.ends_epoch for window in loader.windows(0)] == [False, True]


@pytest.mark.parametrize(
    "options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}]
)
def test_paddles_loader_of_an_iterable_set_is_read_as_it_would_read(options):
    paddle = pytest.importorskip("paddle")

    class Numbers(paddle.io.IterableDataset):
        def __iter__(self):
            yield from ({"x": np.float32([i, i])} for i in range(4))

    made = paddle.io.DataLoader(Numbers(), **options)
    expected = [batch["x"].numpy().tolist() for batch in made]
    assert [w[0] for w in rows(Data(made).train_loader().windows(0))] == expected


def test_a_hugging_face_buffer_in_a_stateful_loader_is_read_again():
    datasets = pytest.importorskip("datasets")
    module = pytest.importorskip("torchdata.stateful_dataloader")
    numbers = datasets.Dataset.from_dict({"x": list(range(20))})
    stream = numbers.to_iterable_dataset().shuffle(seed=1, buffer_size=4)
    loader = Data(module.StatefulDataLoader(stream, batch_size=4)).train_loader()
    next(loader.windows(0))
    assert loader.state() == {}


def distributed(framework, rank, world_size, n=10):
    if framework == "torch":
        data = pytest.importorskip("torch.utils.data")
        sampler = data.DistributedSampler(range(n), world_size, rank, shuffle=False)
        return data.DataLoader(Noisy(n), batch_size=2, sampler=sampler)
    io = pytest.importorskip("paddle").io
    loader = make_loader("paddle", Noisy(n), batch_size=2)
    loader.batch_sampler = io.DistributedBatchSampler(loader.dataset, 2, world_size, rank)
    return loader


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_distributed_sampler_gives_each_rank_its_own(framework):
    ranks = []
    for rank in (0, 1):
        loader = Data(distributed(framework, rank, 2)).train_loader(rank=rank, world_size=2)
        assert loader.steps_per_epoch == 3
        windows = list(loader.windows(0))
        assert [window.weight for window in windows] == [4.0, 4.0, 2.0]
        ranks.append([x for window in rows(windows) for batch in window for x in batch])
    assert sorted(ranks[0] + ranks[1]) == list(range(10))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (0, 3), (1, 2)])
def test_a_distributed_sampler_of_other_ranks_is_refused(framework, rank, world_size):
    data = Data(distributed(framework, 0, 2))
    message = f"for rank 0 of 2, and this is rank {rank} of {world_size}"
    with pytest.raises(DataError, match=message):
        data.train_loader(rank=rank, world_size=world_size)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_distributed_sampler_is_refused_in_an_evaluation(framework):
    data = Data(None, distributed(framework, 0, 2))
    with pytest.raises(DataError, match="gives some samples twice"):
        data.eval_loaders(rank=0, world_size=2)
