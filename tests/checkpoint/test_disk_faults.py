"""A disk that is full, broken or read-only: the error says so, and nothing there is lost."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CheckpointError, ConfigError, NonFiniteLossError

FAULTY = ("open", "write", "fsync", "rename", "replace", "mkdir")


def big(value, megabytes=4):
    return {"model": {"w": np.full(int(megabytes * (1 << 17)), value, np.float64)}}


def save_big(store, step, value=None, **kwargs):
    state = big(step if value is None else value, **kwargs)
    store.save(state, step=step, epoch=0, metrics={}, score=None)
    store.wait()


def break_call(monkeypatch, number, code):
    """Let the call of that number (from 1) fail; returns a function that tells whether it came."""
    left = number

    def wrapped(real):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return call

    for name in FAULTY:
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return lambda: left <= 0


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("again", [False, True], ids=["new", "replacing"])
def test_an_error_at_any_call_fails_the_save_and_nothing_else(
    memory_path, save, tree, assert_same, monkeypatch, code, again
):
    step = 5 if again else 10
    for number in range(1, 1000):
        root = memory_path / str(number)
        store = CheckpointStore(root, background=number % 2 == 0)
        save(store, 5, 0.5)
        with monkeypatch.context() as patched:
            came = break_call(patched, number, code)
            try:
                save(store, step, 0.7, number=11)
                failed = False
            except CheckpointError as error:
                failed = True
                message = str(error)
        if not came():
            break
        state, _ = CheckpointStore(root).load("last")
        number_kept = state["trainer"]["number"]
        assert_same(state, tree(number_kept))
        if failed:
            assert f"{root}/step-{step:08d}" in message
            assert errno.errorcode[code] in message
            assert re.search(r"needs \d+ bytes .*free are \d+ bytes", message)
            assert not list(root.glob(".*"))
        else:
            assert number_kept == 11
        save(store, 15, 0.6)
        assert store.last().step == 15
        store.close()
        save(CheckpointStore(root, background=False), 20, 0.6)
        assert not list(root.glob(".*"))
        shutil.rmtree(root)
    assert number > 20


def test_a_failed_sync_is_not_tried_again_and_not_committed(tmp_path, save, monkeypatch):
    store = CheckpointStore(tmp_path, background=False)
    save(store, 5)
    calls = []

    def broken(descriptor):
        calls.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(CheckpointError, match="EIO"):
            save(store, 10)
    assert len(calls) == 1
    assert store.last().step == 5


@pytest.mark.parametrize("background", [True, False], ids=["background", "inline"])
def test_a_failure_may_be_told_only_and_the_next_save_tries_again(
    tmp_path, save, monkeypatch, caplog, background
):
    store = CheckpointStore(tmp_path, background=background, on_error="warn")
    save(store, 5, 0.5)
    with monkeypatch.context() as patched:
        break_call(patched, 3, errno.ENOSPC)
        save(store, 10, 0.7)
    assert re.search(r"step-00000010: No space .*needs \d+ bytes.*on_error=warn", caplog.text)
    assert store.last().step == 5
    save(store, 15, 0.6)
    assert (store.last().step, store.best().step) == (15, 15)
    store.close()
    assert len(caplog.records) == 1


def test_that_the_last_one_failed_is_told_again_at_the_end_once(
    tmp_path, save, monkeypatch, caplog
):
    store = CheckpointStore(tmp_path, on_error="warn")
    save(store, 5)
    with monkeypatch.context() as patched:
        break_call(patched, 3, errno.EIO)
        save(store, 10)
    store.poll()
    store.close()
    store.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    last = caplog.records[-1].getMessage()
    assert last == f"the last save has failed: there is no checkpoint {tmp_path}/step-00000010"


def test_what_is_no_fault_of_the_disk_is_an_error_in_any_case(tmp_path, save):
    store = CheckpointStore(tmp_path, on_error="warn", background=False)
    save(store, 5)
    with pytest.raises(NonFiniteLossError, match="w holds NaN after step 10"):
        save_big(store, 10, megabytes=0.1, value=np.nan)
    with pytest.raises(CheckpointError, match="of type set"):
        store.save({"trainer": {"x": {1}}}, step=10, epoch=0, metrics={}, score=None)
    assert not list(tmp_path.glob(".*"))
    assert store.last().step == 5


@pytest.mark.parametrize("value", ["ignore", None, True])
def test_another_answer_to_a_failure_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match=r"checkpoint\.on_error: is .*allowed: raise, warn"):
        CheckpointStore(tmp_path, on_error=value)


@pytest.mark.parametrize("later", ["save", "wait", "close", "last"])
def test_a_failure_in_the_background_is_raised_at_the_next_call_once(
    tmp_path, save, tree, monkeypatch, later
):
    store = CheckpointStore(tmp_path)
    save(store, 5)
    with monkeypatch.context() as patched:
        break_call(patched, 3, errno.EIO)
        store.save(tree(10), step=10, epoch=0, metrics={}, score=None)
        call = partial(save, store, 15) if later == "save" else getattr(store, later)
        with pytest.raises(CheckpointError, match="EIO"):
            call()
    assert store.last().step == 5
    save(store, 15)
    assert store.last().step == 15
    store.close()


def test_a_limit_on_file_size_fails_the_save_and_kills_nobody(tmp_path):
    store = CheckpointStore(tmp_path)
    save_big(store, 1, megabytes=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
    try:
        with pytest.raises(CheckpointError, match=r"EFBIG, at .*model\.safetensors"):
            save_big(store, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.last().step == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.json", "step-00000001"]
    save_big(store, 2)
    assert store.load("last")[0]["model"]["w"][0] == 2
    store.close()


def test_a_removed_directory_is_an_error_and_is_not_made_again(tmp_path, save):
    root = tmp_path / "run" / "checkpoints"
    store = CheckpointStore(root)
    save(store, 5)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CheckpointError, match=f"cannot write checkpoint {root}.*ENOENT"):
        save(store, 10)
    assert not (tmp_path / "run").exists()
    store.close()


@pytest.mark.parametrize("mode", [0o755, 0o700], ids=["readable", "closed"])
def test_a_directory_of_somebody_else_is_refused(memory_path, save, mode):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    memory_path.chmod(0o755)
    root = memory_path / "checkpoints"
    save(CheckpointStore(root, background=False), 5)
    root.chmod(mode)
    before = {path: path.read_bytes() for path in root.rglob("*.*")}
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            with pytest.raises(CheckpointError, match=r"step-00000010: Permission denied \(EACCES"):
                save(CheckpointStore(root), 10)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert {path: path.read_bytes() for path in root.rglob("*.*")} == before


MOUNTED = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_disk_faults as faults
from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CheckpointError

def mount(*options):
    subprocess.run(["mount", *options], check=True)

def fails(code, save):
    try:
        save()
    except CheckpointError as error:
        assert code in str(error), str(error)
        print(error)
    else:
        raise AssertionError("the save did not fail")

for name, options in (("full", "size=6m"), ("inodes", "nr_inodes=14")):
    root = Path({root!r}) / name
    root.mkdir()
    mount("-t", "tmpfs", "-o", options, "tmpfs", str(root))
    store = CheckpointStore(root / "checkpoints")
    faults.save_big(store, 1)
    filler = root / "filler"
    filler.mkdir()
    if name == "inodes":
        for number in range(6):
            (filler / str(number)).touch()
    fails("ENOSPC", lambda: faults.save_big(store, 2))
    assert store.load("last")[0]["model"]["w"][0] == 1
    assert not list((root / "checkpoints").glob(".*"))
    mount("-o", "remount,size=20m,nr_inodes=99", str(root))
    faults.save_big(store, 2)
    assert store.load("last")[0]["model"]["w"][0] == 2
    mount("-o", "remount,ro", str(root))
    fails("EROFS", lambda: faults.save_big(store, 3))
    fails("EROFS", lambda: faults.save_big(CheckpointStore(root / "checkpoints"), 3))
    fails("EROFS", lambda: faults.save_big(CheckpointStore(root / "another"), 3))
    assert CheckpointStore(root / "checkpoints").last().step == 2
print("all done")
"""


def test_a_full_disk_keeps_what_was_there(tmp_path):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounting a small disk needs root and unshare")
    code = MOUNTED.format(tests=str(Path(__file__).parent), root=str(tmp_path))
    command = ["unshare", "-m", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.endswith("all done\n"), done.stdout + done.stderr
    assert re.search(r"needs 4\d{6} bytes and 4 files, free are \d+ bytes and 0 files", done.stdout)


@pytest.mark.parametrize("which", ["last", "best"])
def test_a_pointer_that_cannot_be_written_costs_no_checkpoint(tmp_path, save, caplog, which):
    (tmp_path / f"{which}.json").mkdir()
    store = CheckpointStore(tmp_path, keep_last=1)
    save(store, 5, 0.5)
    save(store, 10, 0.6)
    assert store.last().step == 10
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000010"]
    assert f"{which}.json is out of date, for it cannot be written: Is a directory" in caplog.text
    store.close()
