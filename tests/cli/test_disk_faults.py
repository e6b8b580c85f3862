"""Places that cannot be written, and disks that run full."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest

from expkit.checkpoint import CheckpointStore
from tests.cli.conftest import SMALL, info, records

BIG = ("model.hidden=[40000]", "optimizer=sgd")  # a checkpoint of 1.1 MB


def mounted(project, options: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The command in a mount namespace of its own, with a file system at ``small``."""
    (project.path / "small").mkdir(exist_ok=True)
    (project.path / "kept").mkdir(exist_ok=True)
    script = (
        f"mount -t tmpfs -o {options} tmpfs small || exit 99; "
        '"$@"; code=$?; cp -a small/. kept; exit $code'
    )
    command = [sys.executable, "-m", "expkit", *args]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command],
        cwd=project.path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip("this needs the right to mount: " + done.stderr.strip())
    return done


@pytest.fixture(autouse=True)
def can_mount(request):
    if "mount" in request.node.name and (os.geteuid() != 0 or shutil.which("unshare") is None):
        pytest.skip("mounting needs root and unshare")


@pytest.mark.slow
def test_a_full_disk_in_a_mount_names_path_and_bytes_and_keeps_older_checkpoints(project):
    done = mounted(
        project, "size=2m", SMALL, *BIG, "checkpoint.keep_last=null", "hydra.run.dir=small/X"
    )
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "ENOSPC" in text
    assert "small/X/checkpoints/step-00000010" in text
    assert "free are" in text
    assert "Traceback" not in text
    kept = project.path / "kept/X"
    newest = CheckpointStore(kept / "checkpoints").last()
    assert newest is not None
    assert newest.step == 5
    assert not list(kept.rglob("*.tmp"))
    again = project.process(f"resume={kept}")  # where there is room
    assert again.code == 0, again.text
    assert info(kept)["result"]["steps"] == 10


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["numpy", "torch"])
def test_a_full_disk_in_a_mount_is_only_told_where_the_config_says_so(project, driver):
    pytest.importorskip(driver)
    options = ("checkpoint.keep_last=null", "checkpoint.on_error=warn", f"driver={driver}")
    done = mounted(project, "size=2m", SMALL, *BIG, *options, "hydra.run.dir=small/X")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert text.count("cannot write checkpoint") == 1
    assert re.search(r"checkpoints/step-00000010: .*ENOSPC.*needs \d+ bytes.*free are", text)
    assert text.count("the last save has failed: there is no checkpoint") == 1
    assert "Traceback" not in text
    kept = project.path / "kept/X"
    assert info(kept)["status"] == "completed"
    assert info(kept)["result"]["steps"] == 10
    store = CheckpointStore(kept / "checkpoints")
    assert (store.last().step, store.best().step) == (5, 5)
    assert not list(kept.rglob("*.tmp"))
    again = project.process(f"resume={kept}")  # where there is room
    assert again.code == 0, again.text
    assert "its end is in no checkpoint" in again.text
    assert CheckpointStore(kept / "checkpoints").last().step == 10


def test_what_a_failed_save_means_is_one_of_two(command):
    done = command(SMALL, "checkpoint.on_error=ignore")
    assert done.code == 2
    assert "checkpoint.on_error: " in done.err
    assert "allowed: 'raise', 'warn'" in done.err or "raise, warn" in done.err


def test_a_mount_without_inodes_is_a_full_disk_too(project):
    done = mounted(project, "nr_inodes=14", SMALL, "hydra.run.dir=small/X", "logger=none")
    text = done.stdout + done.stderr
    assert done.returncode in (1, 2), text
    assert "No space left on device" in text
    assert "Traceback" not in text


def test_a_file_that_may_not_grow_is_an_error_in_words(project):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    done = project.process(SMALL, *BIG, preexec_fn=limit)
    assert done.code == 1
    assert "EFBIG" in done.text
    assert "Traceback" not in done.text
    assert info(project.run())["error"]["type"] == "CheckpointError"


def test_a_read_only_mount_is_refused_at_once(project):
    began = time.monotonic()
    done = mounted(project, "ro,size=1m", "driver=torch", "output_dir=small")
    assert done.returncode == 2
    assert time.monotonic() - began < 10
    (line,) = done.stderr.splitlines()
    assert "Read-only file system" in line
    assert "output_dir=" in line
    assert done.stdout == ""


def test_a_file_in_place_of_the_output_directory_is_refused(command, project):
    (project.path / "outputs").write_text("mine")
    done = command(SMALL)
    assert (done.code, done.out) == (2, "")
    assert "outputs" in done.err
    assert len(done.err.splitlines()) == 1
    assert (project.path / "outputs").read_text() == "mine"


def test_a_run_directory_that_is_removed_under_way_is_an_error_in_words(command, project):
    (project.path / "my_callbacks.py").write_text(
        "from expkit.core.events import Callback\n"
        "class Probe(Callback):\n"
        "    def __init__(self, step, what): pass\n"
        "    def step_end(self, context):\n"
        "        if context.progress.step == 7: context.run_dir.rename('gone')\n"
    )
    done = command(SMALL, "callbacks=[probe]", "logger=none", "checkpoint.background=false")
    assert done.code == 1
    assert "No such file or directory" in done.text
    assert "checkpoints" in done.text
    assert "Traceback" not in done.text
    assert info(project.path / "gone")["status"] == "running"  # nobody was there to change it
    assert CheckpointStore(project.path / "gone/checkpoints").last().step == 5


def test_metrics_that_cannot_be_written_do_not_end_the_training(command, project, monkeypatch):
    from expkit.run.event_file import EventFile

    def refuse(self, record):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(EventFile, "write", refuse)
    done = command(SMALL)
    assert done.code == 0
    assert done.text.count("cannot write") == 1
    assert len(records(project.run())) == 10
