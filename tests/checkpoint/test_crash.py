"""A writer that dies at any moment leaves a valid newest checkpoint, and so does a loss of power."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from expkit.checkpoint import CheckpointStore

CALLS = ("mkdir", "open", "write", "fsync", "rename", "replace", "unlink", "rmdir")


def in_child(work: Callable[[], None], kill_after_s: float | None = None) -> int:
    """Run ``work`` in a forked process, perhaps kill it; its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_kill_at_a_random_moment_costs_no_checkpoint(tmp_path, save, tree, assert_same, caplog):
    root = tmp_path / "checkpoints"
    told, tell = os.pipe()
    chance = random.Random(0)
    cut_short = committed = 0

    def train() -> None:
        store = CheckpointStore(root)
        last = store.last()
        step = last.step if last else 0
        while True:
            step += 1
            save(store, step, chance.random())
            os.write(tell, step.to_bytes(4, "big"))

    for _ in range(30):
        assert in_child(train, chance.uniform(0.01, 0.04)) == -signal.SIGKILL
        cut_short += bool(list(root.glob(".*.tmp")))
        os.set_blocking(told, False)
        reports = os.read(told, 1 << 16) if committed == 0 or select_ready(told) else b""
        if reports:
            committed = int.from_bytes(reports[-4:], "big")
        state, info = CheckpointStore(root).load("last")
        assert info.step >= committed
        assert_same(state, tree(info.step))
        assert CheckpointStore(root).best() is not None
    os.close(told)
    os.close(tell)
    assert committed >= 30
    assert cut_short >= 5, "hardly a kill fell into a save: nothing was tested"
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]


def select_ready(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 0)[0])


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


def test_a_kill_at_any_call_costs_no_checkpoint(tmp_path, save, tree, assert_same, caplog):
    before = tmp_path / "before"
    store = CheckpointStore(before)
    save(store, 5, 0.9)
    save(store, 10, 0.1)
    store.close()

    def work(root: Path, number: int) -> None:
        store = CheckpointStore(root, background=False)
        at_call(number)
        save(store, 10, 0.2, number=11)
        save(store, 15, 0.3)

    steps_seen = []
    for number in range(1, 1000):
        root = tmp_path / str(number)
        shutil.copytree(before, root)
        code = in_child(lambda root=root, number=number: work(root, number))
        state, info = CheckpointStore(root).load("last")
        steps_seen.append(state["trainer"]["progress"]["step"])
        assert_same(state, tree(steps_seen[-1]))
        assert CheckpointStore(root).best().step == 5
        store = CheckpointStore(root, background=False)
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


class Disk:
    """What a disk has to keep: replays recorded calls with the most that a loss of power may undo.

    Content counts once its file was synced, else the file is empty. Names count once their
    directory was synced; later changes of names may be there, in order, or not.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[tuple[str, ...]] = []
        self.commits: list[int] = []
        self._paths: dict[int, str] = {}

    def record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Log the calls that matter, from now on."""
        real = {name: getattr(os, name) for name in CALLS}

        def opened(path, flags, mode=0o777, *, dir_fd=None):
            descriptor = real["open"](path, flags, mode, dir_fd=dir_fd)
            if dir_fd is None:
                self._paths[descriptor] = str(path)
                if flags & os.O_CREAT:
                    self.log.append(("create", str(path)))
            return descriptor

        def written(descriptor, data):
            count = real["write"](descriptor, data)
            self.log.append(("write", self._paths[descriptor], bytes(data[:count])))
            return count

        def synced(descriptor):
            real["fsync"](descriptor)
            self.log.append(("sync", self._paths[descriptor]))

        def renamed(source, target):
            real["rename"](source, target)
            self.log.append(("rename", str(source), str(target)))

        def made(path, mode=0o777):
            real["mkdir"](path, mode)
            self.log.append(("mkdir", str(path)))

        def removed(path, ignore_errors=False):
            rmtree(path, ignore_errors)
            self.log.append(("rmtree", str(path)))

        rmtree = shutil.rmtree
        for name, call in (
            ("open", opened),
            ("write", written),
            ("fsync", synced),
            ("rename", renamed),
            ("replace", renamed),
            ("mkdir", made),
        ):
            monkeypatch.setattr(os, name, call)
        monkeypatch.setattr(shutil, "rmtree", removed)

    def after(self, calls: int, names_kept: bool, target: Path) -> None:
        """Lay out at ``target`` what is left when the power goes after so many calls."""
        content: dict[str, bytes] = {}
        durable: dict[str, bytes] = {}
        names: dict[str, str | None] = {}  # path now -> path when made; None = a directory
        safe: dict[str, str | None] = {}
        for call, path, *rest in self.log[:calls]:
            if call == "create":
                names[path], content[path] = path, b""
            elif call == "write":
                content[path] += rest[0]
            elif call == "mkdir":
                names[path] = None
            elif call == "sync" and path in content:
                durable[path] = content[path]
            elif call == "sync":
                children = {name for name in names | safe if name.startswith(path + "/")}
                deeper = {name for name in children if "/" in name[len(path) + 1 :]}
                direct = children - deeper
                for name in direct | {name for name in deeper if names.get(name) is not None}:
                    if name in names:
                        safe[name] = names[name]
                    else:
                        safe.pop(name, None)
                gone = {name for name in safe if name.startswith(path + "/") and name not in names}
                safe = {name: made for name, made in safe.items() if name not in gone}
            elif call == "rename":
                names = {
                    rest[0] + name[len(path) :] if under(name, path) else name: made
                    for name, made in names.items()
                    if not under(name, rest[0])
                }
            elif call == "rmtree":
                names = {name: made for name, made in names.items() if not under(name, path)}
        for name, made in sorted((names if names_kept else safe).items()):
            place = target / Path(name).relative_to(self.root)
            if made is None:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(durable.get(made, b""))


def under(name: str, path: str) -> bool:
    return name == path or name.startswith(path + "/")
