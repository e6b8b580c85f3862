"""A writer that dies, or a loss of power, at any moment leaves a valid newest checkpoint."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expkit.checkpoint import CheckpointStore

ENOUGH_CUT_SHORT = 5
CALLS = ("mkdir", "open", "write", "fsync", "rename", "replace", "unlink", "rmdir")


def fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process; its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    """Wait for a child; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_kill_at_a_random_moment_costs_no_checkpoint(
    memory_path, save, tree, assert_same, caplog
):
    root = memory_path / "checkpoints"
    told, tell = os.pipe()
    chance = random.Random(0)
    kills = cut_short = committed = 0

    def train() -> None:
        store = CheckpointStore(root)
        last = store.last()
        step = last.step if last else 0
        while True:
            step += 1
            save(store, step, chance.random())
            os.write(tell, step.to_bytes(4, "big"))

    # When a kill falls is up to the machine: it goes on until enough of them fell into a save.
    while kills < 30 or (cut_short < ENOUGH_CUT_SHORT and kills < 300):
        kills += 1
        pid = fork(train)
        reports = os.read(told, 4)
        time.sleep(chance.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        assert exit_code(pid) == -signal.SIGKILL
        cut_short += any(root.glob(".*.tmp"))
        while select.select([told], [], [], 0)[0]:
            reports = os.read(told, 4)
        committed = int.from_bytes(reports, "big")
        state, info = CheckpointStore(root).load("last")
        assert info.step in (committed, committed + 1)
        assert_same(state, tree(info.step))
        assert CheckpointStore(root).best() is not None
    os.close(told)
    os.close(tell)
    assert committed >= kills
    assert cut_short >= ENOUGH_CUT_SHORT, "hardly a kill fell into a save: nothing was tested"
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]


def at_call(number: int) -> None:
    """Die right before the call of that number (from 1); a write is done to its half."""
    left = number

    def wrapped(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))


@pytest.mark.slow
def test_a_kill_at_any_call_costs_no_checkpoint(memory_path, save, tree, assert_same, caplog):
    before = memory_path / "before"
    store = CheckpointStore(before)
    save(store, 5, 0.9)
    save(store, 10, 0.1)
    store.close()

    def work(root: Path, number: int) -> None:
        store = CheckpointStore(root, keep_last=1, background=False)
        at_call(number)
        save(store, 10, 0.2, number=11)
        save(store, 15, 0.3)

    steps_seen = []
    for number in range(1, 1000):
        root = memory_path / str(number)
        shutil.copytree(before, root)
        code = exit_code(fork(partial(work, root, number)))
        state, _ = CheckpointStore(root).load("last")
        steps_seen.append(state["trainer"]["number"])
        assert_same(state, tree(steps_seen[-1]))
        assert CheckpointStore(root).best().step == 5
        store = CheckpointStore(root, keep_last=1, background=False)
        save(store, 20, 0.4)
        names = sorted(path.name for path in root.iterdir())
        assert names == ["best.json", "last.json", "step-00000005", "step-00000020"]
        shutil.rmtree(root)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert number > 60
    assert steps_seen == sorted(steps_seen)
    assert set(steps_seen) == {10, 11, 15}
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]


def test_a_kill_while_going_back_leaves_a_run_that_can_go_back_again(memory_path, save, caplog):
    before = memory_path / "before"
    store = CheckpointStore(before, keep_last=None)
    for step, score in ((5, 0.9), (10, 0.5), (15, 0.95), (20, 0.1)):
        save(store, step, score)
    store.close()

    def work(root: Path, number: int) -> None:
        at_call(number)
        CheckpointStore(root, background=False).go_back(10)

    steps_seen = []
    for number in range(1, 1000):
        root = memory_path / str(number)
        shutil.copytree(before, root)
        code = exit_code(fork(partial(work, root, number)))
        store = CheckpointStore(root, background=False)
        steps_seen.append(store.last().step)
        store.go_back(10)
        assert store.last().step == 10
        assert store.best().step == 5
        save(store, 12, 0.4)
        names = sorted(path.name for path in root.iterdir())
        kept = [f"step-{step:08d}" for step in (5, 10, 12)]
        assert names == ["best.json", "last.json", *kept]
        shutil.rmtree(root)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert steps_seen[0] == 20
    assert steps_seen[-1] == 10
    assert number > 10
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]


class Disk:
    """What calls leave on a disk when the power goes, at the worst.

    A file has what it had when it was last synced, and is there once its directory was synced after
    it was made. Renamed and removed names count at once, or not before the root is synced: both are
    looked at, since a file system may do either.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[tuple[Any, ...]] = []

    def record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Log the calls that change the disk, from now on."""
        paths: dict[int, str] = {}
        real = {name: getattr(os, name) for name in CALLS}
        rmtree = shutil.rmtree

        def opened(path, flags, mode=0o777, *, dir_fd=None):
            descriptor = real["open"](path, flags, mode, dir_fd=dir_fd)
            paths[descriptor] = str(path)
            if flags & os.O_CREAT:
                self.log.append(("create", str(path)))
            return descriptor

        def written(descriptor, data):
            count = real["write"](descriptor, data)
            self.log.append(("write", paths[descriptor], bytes(data[:count])))
            return count

        def synced(descriptor):
            real["fsync"](descriptor)
            self.log.append(("sync", paths[descriptor]))

        def renamed(source, target):
            real["replace"](source, target)
            self.log.append(("rename", str(source), str(target)))

        def removed(path, ignore_errors=False):
            rmtree(path, ignore_errors)
            self.log.append(("remove", str(path)))

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(os, "write", written)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(os, "replace", renamed)
        monkeypatch.setattr(shutil, "rmtree", removed)

    def after(self, calls: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Files by path after so many calls, if names count at once, and if they do not."""
        files: dict[str, list[Any]] = {}  # path -> [content, synced content, whether its name is]
        at_sync: dict[str, list[Any]] = {}
        for call, path, *rest in self.log[:calls]:
            if call == "create":
                files[path] = [b"", b"", False]
            elif call == "write":
                files[path][0] += rest[0]
            elif call == "sync" and path in files:
                files[path][1] = files[path][0]
            elif call == "sync":
                for name, file in files.items():
                    file[2] |= str(Path(name).parent) == path
                if path == str(self.root):
                    at_sync = dict(files)
            elif call == "rename":
                files = {rest[0] + n[len(path) :] if under(n, path) else n: files[n] for n in files}
            elif call == "remove":
                files = {name: file for name, file in files.items() if not under(name, path)}
        first, second = (
            {name: file[1] for name, file in names.items() if file[2]} for names in (files, at_sync)
        )
        return first, second


def under(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}/")


def test_a_loss_of_power_costs_no_checkpoint(memory_path, save, tree, assert_same, monkeypatch):
    disk = Disk(memory_path / "checkpoints")
    with monkeypatch.context() as patched:
        disk.record(patched)
        store = CheckpointStore(disk.root, background=False)
        saves = [(5, 0.9), (10, 0.1), (15, 0.5), (15, 0.4), (20, 0.6)]
        for number, (step, score) in enumerate(saves):
            save(store, step, score, number=number)
            disk.log.append(("saved", number))
    states = 0
    for calls in range(len(disk.log) + 1):
        saved = max((entry[1] for entry in disk.log[:calls] if entry[0] == "saved"), default=None)
        for files in disk.after(calls):
            root = memory_path / f"state-{states}"
            states += 1
            for name, content in files.items():
                place = root / Path(name).relative_to(disk.root)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            if saved is not None:
                state, info = CheckpointStore(root).load("last")
                number = state["trainer"]["number"]
                assert number >= saved
                assert info.step == saves[number][0]
                assert_same(state, tree(number))
                assert CheckpointStore(root).best().step == 5
            shutil.rmtree(root, ignore_errors=True)
    assert states > 150


def test_what_a_run_went_back_from_does_not_return_with_the_power(memory_path, save, monkeypatch):
    disk = Disk(memory_path / "checkpoints")
    with monkeypatch.context() as patched:
        disk.record(patched)
        store = CheckpointStore(disk.root, keep_last=None, background=False)
        for step in (5, 10, 15, 20):
            save(store, step)
        CheckpointStore(disk.root, background=False).go_back(10)
    for number, files in enumerate(disk.after(len(disk.log))):
        root = memory_path / f"state-{number}"
        for name, content in files.items():
            place = root / Path(name).relative_to(disk.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        assert CheckpointStore(root).last().step == 10
