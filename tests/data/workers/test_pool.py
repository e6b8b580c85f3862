from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError, WorkerError
from expkit.data import Data, Sequential, as_dataset
from expkit.data.reading import Request
from expkit.data.workers.channel import _MAX_HELD
from expkit.data.workers.pool import WorkerPool
from expkit.data.workers.worker import _fate
from expkit.launch.signals import STOP_SIGNALS


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Point:
    x: float
    name: str


class Nested:
    """Samples of all kinds, with draws in them."""

    def __init__(self, n=53):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {
            "i": i,
            "drawn": np.array([random.random(), np.random.rand()]),
            "inner": {"text": f"no. {i}", "none": None},
            "pair": Pair(np.full((2, 3), i, np.float32), (i, 2.5)),
            "point": Point(float(i), "n"),
            "path": Path(str(i)),
        }


class Rows:
    """Whole batches with a row of this many bytes for each sample."""

    def __init__(self, n, row_bytes, draw=lambda: None):
        self.n, self.row_bytes, self.draw = n, row_bytes, draw

    def __len__(self):
        return self.n

    def fetch(self, indices):
        self.draw()
        rows = np.repeat(indices[:, None], self.row_bytes // 8, axis=1)
        return {"x": rows, "pid": np.full(len(indices), os.getpid())}


class Act:
    """Indices as samples; does something at one of them."""

    def __init__(self, action, at=13, n=40):
        self.action, self.at, self.n = action, at, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == self.at:
            self.action()
        return {"x": i, "pid": os.getpid()}


def plain(value):
    """Arrays as lists, so that whole batches can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return type(value).__name__, [plain(each) for each in value]
    return (Point, plain(vars(value))) if isinstance(value, Point) else value


def everything(data):
    loader = data.train_loader(accumulate=2, rank=1, world_size=3)
    found = []
    for epoch, start in ((0, 0), (1, 2)):
        for window in loader.windows(epoch, start):
            for batch in window.batches:
                weights = None if batch.weights is None else batch.weights.tolist()
                found.append((window.weight, batch.indices.tolist(), weights, plain(batch.fields)))
        for name, each in data.eval_loaders(rank=1, world_size=3, in_step=True).items():
            found += [(name, plain(dict(b.fields)), b.size) for b in each.batches()]
    return found


def children():
    """The processes that this one has started and not reaped."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


@pytest.fixture
def made():
    """Data with workers, which are gone in the end."""
    before, kept = children(), []

    def make(*args, **options):
        kept.append(Data(*args, **options))
        return kept[-1]

    yield make
    for data in kept:
        data.close()
    assert children() <= before


def pids(windows):
    return [int(b.fields["pid"][0]) for w in windows for b in w.batches]


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.01)


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_are_those_without_workers_to_the_last_bit(made, num_workers, prefetch):
    sets = Nested(), {"a": Nested(7), "b": Nested(20)}
    options = {"batch_size": 4, "eval_batch_size": 3}
    expected = everything(Data(*sets, **options))
    data = made(*sets, **options, num_workers=num_workers, prefetch=prefetch)
    assert everything(data) == expected


@pytest.mark.parametrize("row_bytes", [8, 1000, 100_000, 3_000_000])
def test_batches_of_each_size_arrive_whole_and_are_writable(made, row_bytes):
    data = made(Rows(40, row_bytes), batch_size=4, num_workers=2)
    for window in data.train_loader().windows(0):
        [batch] = window.batches
        assert batch.fields["x"].shape == (4, row_bytes // 8)
        assert (batch.fields["x"] == batch.indices[:, None]).all()
        batch.fields["x"][:] = -1


def test_arrays_of_odd_kinds_arrive_as_they_are(made):
    class Odd:
        def __len__(self):
            return 2

        def fetch(self, indices):
            big = np.arange(2 * 50_000, dtype=np.float32).reshape(2, 50_000)
            return {
                "column_major": np.asfortranarray(big),
                "strided": np.concatenate([big, big], axis=1)[:, ::2],
                "empty": np.zeros((2, 0)),
                "half": (big % 100).astype(np.float16),
                "text": ["x" * 50_000, "y"],
                "objects": np.array([None, "z"], dtype=object),
            }

    [expected] = Data(None, Odd()).eval_loaders()[""].batches()
    [found] = made(None, Odd(), num_workers=1).eval_loaders()[""].batches()
    assert plain(dict(found.fields)) == plain(dict(expected.fields))


def test_kept_batches_are_never_written_again(made):
    data = made(Rows(10 * 4 * _MAX_HELD, 40_000), batch_size=4, num_workers=2)
    windows = [w for epoch in (0, 1) for w in data.train_loader().windows(epoch)]
    for window in windows:
        [batch] = window.batches
        assert (batch.fields["x"] == batch.indices[:, None]).all()


def test_memory_is_used_again_and_so_bounded(made):
    data = made(Rows(400, 500_000), batch_size=4, num_workers=1)
    maps = Path("/proc/self/maps")
    most = 0
    for _ in data.train_loader().windows(0):
        most = max(most, sum("memfd:batch" in line for line in maps.read_text().splitlines()))
    assert 1 <= most <= 4  # the one in use, those read ahead, and the one before
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for epoch in (1, 2):
        for _ in data.train_loader().windows(epoch):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2


def test_workers_read_ahead_no_more_than_they_may(made, tmp_path):
    def note():
        with (tmp_path / "reads").open("a") as file:
            file.write("x")

    data = made(Rows(400, 8, note), batch_size=4, num_workers=2, prefetch=3)
    windows = data.train_loader().windows(0)
    next(windows)
    next(windows)
    wait_until(lambda: len((tmp_path / "reads").read_text()) == 2 + 2 * 3)
    time.sleep(0.1)
    assert len((tmp_path / "reads").read_text()) == 2 + 2 * 3


def test_workers_are_started_when_they_are_needed_kept_and_shared(made):
    data = made(Rows(40, 8), {"a": Rows(40, 8)}, batch_size=4, eval_batch_size=4, num_workers=2)
    loader, [evaluation] = data.train_loader(), data.eval_loaders().values()
    before = children()
    first = pids(loader.windows(0))
    assert set(first) == children() - before
    assert len(set(first)) == 2
    assert first[0::2] == [first[0]] * 5
    assert set(pids(loader.windows(1))) == set(first)
    assert {int(b.fields["pid"][0]) for b in evaluation.batches()} == set(first)
    data.close()
    assert not any(map(is_alive, first))
    data.close()
    assert set(pids(loader.windows(2))).isdisjoint(first)


def test_evaluation_in_the_middle_of_an_epoch_leaves_both_in_order(made):
    data = made(Nested(60), Nested(30), batch_size=5, eval_batch_size=4, num_workers=3)
    alone = Data(Nested(60), Nested(30), batch_size=5, eval_batch_size=4)
    expected = [plain(dict(w.batches[0].fields)) for w in alone.train_loader().windows(0)]
    evaluated = [plain(dict(b.fields)) for b in alone.eval_loaders()[""].batches()]
    found = []
    for window in data.train_loader().windows(0):
        found.append(plain(dict(window.batches[0].fields)))
        batches = data.eval_loaders()[""].batches()
        assert [plain(dict(b.fields)) for b in batches] == evaluated
    assert found == expected


def test_readings_that_are_given_up_leave_nothing_in_the_way(made):
    data = made(Rows(4000, 100_000), batch_size=4, num_workers=3)
    loader = data.train_loader()
    for epoch in range(60):
        window = next(loader.windows(epoch))
        assert (window.batches[0].fields["x"][:, 0] == window.batches[0].indices).all()


def test_large_questions_and_answers_do_not_wait_for_each_other():
    n = 60_000
    dataset = as_dataset({"x": np.zeros(10)})
    pool = WorkerPool([dataset], 1, 12)
    indices = np.zeros(n, dtype=np.int64)
    requests = [Request(indices, indices) for _ in range(30)]
    for _ in range(5):
        reading = pool.reader(dataset).read(requests)
        assert next(reading)[1]["x"].shape == (n,)
    assert len(list(pool.reader(dataset).read(requests))) == 30
    pool.close()


# -- errors --------------------------------------------------------------------------------------


def fails_with(data):
    """Batches trained before, and the error."""
    seen = []

    def train():
        for window in data.train_loader().windows(0):
            seen.extend(window.batches[0].indices.tolist())

    with pytest.raises(DataError) as caught:
        train()
    return seen, caught.value


@pytest.mark.parametrize("num_workers", [1, 2])
def test_error_is_the_one_without_workers_at_its_turn_with_the_workers_traceback(made, num_workers):
    def no_such_picture():
        raise ValueError("no such picture")

    options = {"batch_size": 4, "sampler": Sequential()}
    seen, expected = fails_with(Data(Act(no_such_picture), **options))
    found, error = fails_with(made(Act(no_such_picture), **options, num_workers=num_workers))
    assert (found, type(error), str(error)) == (seen, type(expected), str(expected))
    assert str(error) == "sample 13 cannot be read: ValueError: no such picture"
    assert isinstance(error.__cause__, WorkerError)
    assert "in no_such_picture" in str(error.__cause__)
    assert str(error.__cause__).endswith("ValueError: no such picture")


def test_errors_of_other_kinds_keep_kind_and_words(made):
    def refuse():
        raise ConfigError("not this way")

    class Refuses(Rows):
        def fetch(self, indices):
            refuse()

    with pytest.raises(ConfigError, match="not this way"):
        next(made(Refuses(4, 8), num_workers=1).train_loader().windows(0))


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_data_set_that_exits_is_an_error_that_names_the_samples(made, kind):
    def leave():
        raise kind(3)

    _, error = fails_with(made(Act(leave), batch_size=4, sampler=Sequential(), num_workers=2))
    expected = f"samples [12, 13, 14, 15] cannot be read by a worker: {kind.__name__}: 3"
    assert str(error) == expected
    assert "in leave" in str(error.__cause__)


def test_data_that_cannot_be_handed_over_is_named(made):
    class Open(Rows):
        def fetch(self, indices):
            return {"x": indices, "file": [threading.Lock()] * len(indices)}

    _, error = fails_with(made(Open(4, 8), num_workers=1, sampler=Sequential()))
    assert str(error).startswith(
        "samples [0, 1, 2, 3] cannot be handed over by a worker: TypeError: cannot pickle"
    )


def test_after_an_error_the_data_can_be_read_again(made, tmp_path):
    class Once(Rows):
        def fetch(self, indices):
            if 1 in indices and not flag.exists():
                flag.touch()
                raise OSError("not now")
            return super().fetch(indices)

    flag = tmp_path / "flag"
    data = made(Once(8, 8), batch_size=2, num_workers=2)
    fails_with(data)
    assert len(pids(data.train_loader().windows(0))) == 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_killed_worker_is_an_error_that_says_so(made, number):
    action = lambda: os.kill(os.getpid(), number)  # noqa: E731
    started = time.monotonic()
    seen, error = fails_with(made(Act(action), batch_size=4, sampler=Sequential(), num_workers=2))
    assert seen == list(range(12))
    assert f"was ended by {number.name}" in str(error)
    assert "when it was to read samples [12, 13, 14, 15]" in str(error)
    assert time.monotonic() - started < 5


def test_the_usual_reason_of_an_end_is_told():
    assert _fate(-signal.SIGKILL) == "was ended by SIGKILL (is the memory full?)"
    assert _fate(-signal.SIGBUS).endswith("SIGBUS (has a memory-mapped file become shorter?)")
    assert _fate(-signal.SIGTERM) == "was ended by SIGTERM"


def test_worker_that_exits_is_an_error_that_says_so(made):
    _, error = fails_with(made(Act(lambda: os._exit(3)), batch_size=4, num_workers=1))
    assert "ended with exit code 3 when it was to read samples" in str(error)


def test_worker_that_closes_its_connection_is_an_error_that_says_so(made):
    def close_everything():
        os.closerange(3, 1000)
        time.sleep(30)

    started = time.monotonic()
    _, error = fails_with(made(Act(close_everything), batch_size=4, num_workers=2))
    assert "when it was to read samples" in str(error)
    assert time.monotonic() - started < 5


def test_idle_worker_that_is_killed_is_an_error_in_the_next_epoch(made):
    data = made(Rows(40, 8), batch_size=4, num_workers=2)
    [first, *_] = pids(data.train_loader().windows(0))
    os.kill(first, signal.SIGKILL)
    _, error = fails_with(data)
    assert f"worker process {first} of data.num_workers was ended by SIGKILL" in str(error)


def test_end_of_a_worker_is_seen_though_a_process_that_it_has_started_lives_on(made):
    def leave_a_child():
        thread = threading.Thread(target=fork_one_that_stays)
        thread.start()
        thread.join()
        os._exit(1)

    def fork_one_that_stays():
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)

    started = time.monotonic()
    _, error = fails_with(made(Act(leave_a_child), batch_size=4, num_workers=2))
    assert "ended with exit code 1" in str(error)
    assert time.monotonic() - started < 2.5


def test_halted_worker_is_an_error_that_says_so(made, monkeypatch):
    monkeypatch.setattr("expkit.data.workers.worker._LOOK_S", 0.1)
    action = lambda: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
    _, error = fails_with(made(Act(action), batch_size=4, num_workers=2))
    assert "stands still since it was sent SIGSTOP" in str(error)


def test_workers_that_cannot_be_started_are_an_error_that_says_so(made, monkeypatch):
    def no_more():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    data = made(Rows(8, 8), num_workers=2)
    monkeypatch.setattr(os, "fork", no_more)
    with pytest.raises(DataError, match=r"num_workers=2: worker process 1 cannot be started: .*11"):
        next(data.train_loader().windows(0))


# -- how they end --------------------------------------------------------------------------------


def test_stop_signals_pass_the_workers_by(made):
    data = made(Rows(40, 8), batch_size=4, num_workers=2)
    loader = data.train_loader()
    workers = set(pids(loader.windows(0)))
    for pid in workers:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            os.kill(pid, number)
    time.sleep(0.05)
    assert set(pids(loader.windows(1))) == workers


def stop_a_program():
    process = subprocess.Popen(["sleep", "30"])
    process.terminate()
    assert process.wait() == -signal.SIGTERM


def square(number):
    return number * number


def compute_in_a_pool():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, [2, 3]) == [4, 9]


def stop_a_fork():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    process.start()
    time.sleep(0.05)
    process.terminate()
    process.join()
    assert process.exitcode == -signal.SIGTERM


@pytest.mark.parametrize("action", [stop_a_program, compute_in_a_pool, stop_a_fork])
def test_processes_that_a_data_set_starts_can_be_ended(made, action):
    started = time.monotonic()
    data = made(Act(action), batch_size=4, num_workers=2)
    [worker, *_] = pids(data.train_loader().windows(0))
    for number in STOP_SIGNALS:
        os.kill(worker, number)
    assert worker in pids(data.train_loader().windows(1))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_forks_that_a_data_set_keeps_end_with_their_worker(made, number):
    class Keeps(Rows):
        pool = None

        def fetch(self, indices):
            if self.pool is None:
                self.pool = multiprocessing.get_context("fork").Pool(2)
            forks = self.pool.map(wait_and_tell, range(4))
            rows = np.tile(sorted(set(forks))[:2], (len(indices), 1))
            return {"forks": rows, "pid": np.full(len(indices), os.getpid())}

    data = made(Keeps(8, 8), batch_size=4, num_workers=1)
    [first, *_] = list(data.train_loader().windows(0))
    forks = first.batches[0].fields["forks"][0].tolist()
    assert all(map(is_alive, forks))
    if number is not None:
        os.kill(int(first.batches[0].fields["pid"][0]), number)
    data.close()
    wait_until(lambda: not any(map(is_alive, forks)), 5)


def wait_and_tell(_):
    time.sleep(0.02)
    return os.getpid()


def test_signals_that_were_ignored_stay_so_and_the_mask_is_the_one_before(made):
    def told():
        status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True)
        assert read_mask(status.stdout, "SigIgn") & hangup == hangup
        assert read_mask(status.stdout, "SigIgn") & terminate == 0
        assert read_mask(status.stdout, "SigBlk") & (hangup | terminate) == 0

    def read_mask(status, name):
        return int(status.partition(f"{name}:")[2].split()[0], 16)

    hangup, terminate = (1 << (number - 1) for number in (signal.SIGHUP, signal.SIGTERM))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert pids(made(Act(told), batch_size=4, num_workers=1).train_loader().windows(0))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_worker_in_the_middle_of_a_long_read_is_ended(made):
    data = made(Act(lambda: time.sleep(60)), batch_size=4, sampler=Sequential(), num_workers=2)
    windows = data.train_loader().windows(0)
    workers = pids(next(windows) for _ in range(3))
    started = time.monotonic()
    data.close()
    assert time.monotonic() - started < 3
    assert not any(map(is_alive, workers))


def test_forgotten_workers_end_with_their_data():
    data = Data(Rows(40, 8), batch_size=4, num_workers=2)
    workers = set(pids(data.train_loader().windows(0)))
    assert all(map(is_alive, workers))
    del data
    gc.collect()
    assert not any(map(is_alive, workers))


PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    from expkit.data import Data

    class Rows:
        def __len__(self): return 400
        def fetch(self, indices):
            if how == "busy": time.sleep(30 if 0 in indices else 0)
            return {"x": np.zeros((len(indices), 20000)), "pid": np.full(len(indices), os.getpid())}

    how = sys.argv[1]
    data = Data(Rows(), batch_size=4, num_workers=2)
    windows = data.train_loader().windows(0)
    print(*{int(next(windows).batches[0].fields["pid"][0]) for _ in range(2)}, flush=True)
    if how == "raise": raise SystemExit(3)
    if how in ("kill", "busy"): os.kill(os.getpid(), signal.SIGKILL)
    if how == "interrupt": os.killpg(os.getpgrp(), signal.SIGINT); time.sleep(5)
"""


@pytest.mark.parametrize(
    ("how", "code"), [("end", 0), ("raise", 3), ("kill", -9), ("busy", -9), ("interrupt", -2)]
)
def test_workers_end_with_their_process_however_it_ends(how, code):
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), how],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )
    workers = [int(pid) for pid in process.stdout.split()]
    assert (process.returncode, len(workers)) == (code, 2), process.stderr
    wait_until(lambda: not any(map(is_alive, workers)), 5)


def in_a_daemon(queue):
    data = Data(Rows(40, 8), batch_size=4, num_workers=2)
    queue.put(sorted(set(pids(data.train_loader().windows(0)))))
    data.close()


def test_daemonic_processes_have_workers_too():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=in_a_daemon, args=(queue,), daemon=True)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    assert len(queue.get()) == 2


def test_workers_of_a_thread_outlive_it(made):
    data = made(Rows(40, 8), batch_size=4, num_workers=2)
    loader, found = data.train_loader(), []
    thread = threading.Thread(target=lambda: found.extend(pids(loader.windows(0))))
    thread.start()
    thread.join()
    time.sleep(0.05)
    assert set(pids(loader.windows(1))) == set(found)


def test_forked_process_has_workers_of_its_own(made):
    data = made(Rows(40, 8), batch_size=4, num_workers=1)
    loader = data.train_loader()
    ours = set(pids(loader.windows(0)))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def read():
        queue.put(set(pids(loader.windows(0))))
        data.close()

    process = context.Process(target=read)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    assert ours.isdisjoint(queue.get())
    assert set(pids(loader.windows(1))) == ours


# -- data in memory ------------------------------------------------------------------------------


def test_arrays_in_memory_are_read_by_workers_with_a_warning(made, caplog, tmp_path):
    x = np.arange(50)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = everything(Data({"x": x}, {"x": x}, batch_size=4))
    assert everything(made({"x": x}, {"x": x}, batch_size=4, num_workers=2)) == expected
    assert not caplog.records  # only rank 0 tells
    made({"x": x}, num_workers=2).train_loader()
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "data.num_workers only costs time here" in caplog.text
    caplog.clear()
    made({"x": mapped}, num_workers=2).train_loader()
    assert not caplog.records
