"""Runs that go on from what is damaged, moved about, or wanted by two at once."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from expkit.checkpoint import CheckpointStore
from tests.cases.parts import assert_same
from tests.cli.conftest import CONF, MY_CALLBACKS, MY_DATA, SMALL, Project, info, records, tree

pytestmark = pytest.mark.slow

ARGS = (
    SMALL,
    "trainer.n_epochs=4",
    "model.dropout=0.2",
    "checkpoint.save_every=5",
    "checkpoint.keep_last=null",
    "data.source.delay=0.001",
    "callbacks=[probe]",
    "callbacks.probe.step=17",
)
CHECKPOINTS = ["step-00000005", "step-00000010", "step-00000015"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with two runs: ``straight`` to its end, ``broken`` after step 16 of 20."""
    path = tmp_path_factory.mktemp("made")
    (path / "my_data.py").write_text(MY_DATA)
    (path / "my_callbacks.py").write_text(MY_CALLBACKS)
    for name, text in CONF.items():
        file = path / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip())
    project = Project(path)
    for name, what, code in (("straight", "none", 0), ("broken", "raise", 1)):
        directory = f"hydra.run.dir=outputs/2026-01-01/{name}"
        done = project.process(*ARGS, f"callbacks.probe.what={what}", directory)
        assert done.code == code, done.text
    return path / "outputs"


@pytest.fixture
def straight(made):
    return made / "2026-01-01/straight"


@pytest.fixture
def broken(made, project):
    """A copy of the run that was broken off."""
    run = project.path / "outputs/2026-01-01/broken"
    shutil.copytree(made / "2026-01-01/broken", run)
    assert kept(run) == CHECKPOINTS
    return run


@pytest.fixture
def go_on(command):
    """Resume without what broke the run off."""
    return lambda run, *args: command(f"resume={run}", "callbacks.probe.what=none", *args)


def kept(run):
    return sorted(path.name for path in run.glob("checkpoints/step-*"))


def warnings(done):
    return [line for line in done.text.splitlines() if "WARNING" in line]


def assert_ends_like(run, straight):
    """It has completed as the undisturbed run has, to the last bit and record."""
    assert info(run)["status"] == "completed"
    for which in ("last", "best"):
        (state, own), (other, theirs) = (
            CheckpointStore(each / "checkpoints").load(which) for each in (run, straight)
        )
        assert own.step == theirs.step
        assert_same(state, other)
    for split in ("train", "eval"):
        found = [records(each, split) for each in (run, straight)]
        assert [(r.step, r.metrics) for r in found[0]] == [(r.step, r.metrics) for r in found[1]]


# -- damage ----------------------------------------------------------------------------------------


def cut(checkpoint):
    for file in checkpoint.iterdir():
        os.truncate(file, file.stat().st_size // 2)


def flip(file, offset):
    data = bytearray(file.read_bytes())
    data[offset] ^= 16
    file.write_bytes(data)


def test_a_newest_checkpoint_that_is_half_written_is_passed_over(
    command, go_on, broken, straight, project
):
    """Case 58."""
    cut(broken / "checkpoints/step-00000015")
    done = command("resume=latest", "callbacks.probe.what=none")
    assert done.code == 0, done.text
    assert "step 10), epoch" in done.out
    (warning,) = [line for line in warnings(done) if "skipped" in line]
    assert "checkpoints/step-00000015: MANIFEST.json" in warning
    assert_ends_like(broken, straight)


def test_a_half_written_checkpoint_that_is_named_is_refused_with_the_last_good_one(go_on, broken):
    """Case 58, asked for explicitly."""
    bad = broken / "checkpoints/step-00000015"
    cut(bad)
    before = tree(broken)
    done = go_on(bad)
    assert done.code == 1
    assert f"checkpoint {bad} cannot be used: MANIFEST.json" in done.text
    assert f"(try: resume={broken}/checkpoints/step-00000010)" in done.text
    assert "Traceback" not in done.text
    after = tree(broken)
    del before["train.log"], after["train.log"]
    assert after == before


@pytest.mark.parametrize(
    "name",
    ["MANIFEST.json", "state.json", "rank-0000.json", "model.safetensors", "optimizer.safetensors"],
)
def test_a_flipped_bit_costs_one_checkpoint_and_one_warning(go_on, broken, straight, name):
    file = broken / "checkpoints/step-00000015" / name
    flip(file, random.Random(name).randrange(file.stat().st_size))
    done = go_on(broken)
    assert done.code == 0, done.text
    assert "step 10), epoch" in done.out
    (warning,) = [line for line in warnings(done) if "skipped" in line]
    assert f"step-00000015: {name}" in warning
    assert_ends_like(broken, straight)


def test_where_every_checkpoint_is_bad_all_are_named_and_nothing_is_lost(command, go_on, broken):
    for number, name in enumerate(("state.json", "model.safetensors", "rank-0000.json")):
        flip(broken / "checkpoints" / CHECKPOINTS[number] / name, 20)
    before = tree(broken)
    for done in (go_on(broken), command("resume=latest", "callbacks.probe.what=none")):
        assert done.code == 1
        assert "Traceback" not in done.text
        assert "every checkpoint is damaged" in done.text
        for checkpoint in CHECKPOINTS:
            tried = [line for line in done.text.splitlines() if line.startswith("  ")]
            assert any(f"checkpoints/{checkpoint}: " in line for line in tried)
    after = tree(broken)
    del before["train.log"], after["train.log"]
    assert after == before


# -- pointers, clocks, places ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dangling", "empty", "link", "older"])
def test_what_a_pointer_says_does_not_decide(go_on, broken, straight, tmp_path, kind):
    pointer = broken / "checkpoints/last.json"
    outside = tmp_path / "outside.json"
    outside.write_text(pointer.read_text())
    pointer.unlink()
    step = 5 if kind == "older" else 99
    content = {"checkpoint": f"step-{step:08d}", "step": step, "score": None}
    if kind == "link":
        pointer.symlink_to(outside)
    else:
        pointer.write_text("" if kind == "empty" else json.dumps(content))
    untouched = outside.read_text()
    done = go_on(broken)
    assert done.code == 0, done.text
    assert "step 15), epoch" in done.out
    assert [line for line in warnings(done) if "last.json" in line and "ignored" in line]
    assert_ends_like(broken, straight)
    assert outside.read_text() == untouched
    assert not pointer.is_symlink()


def test_neither_clocks_nor_file_times_decide(go_on, broken, straight, monkeypatch):
    """The clock was set back by a day since, and the newest checkpoint looks the oldest."""
    for number, name in enumerate(CHECKPOINTS):
        moment = 2_000_000_000 - 1000 * number
        for path in ((broken / "checkpoints" / name), *(broken / "checkpoints" / name).iterdir()):
            os.utime(path, (moment, moment))
    seconds = info(broken)["seconds"]
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)
    done = go_on(broken)
    assert done.code == 0, done.text
    assert "step 15), epoch" in done.out
    assert_ends_like(broken, straight)
    assert seconds < info(broken)["seconds"] < seconds + 60
    assert not re.search(r"-\d+:\d\d|-\d+(\.\d+)? s\b", done.text)


def in_zone(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()


def test_the_time_zone_does_not_decide_which_run_is_the_latest(command, project, monkeypatch):
    """The second run is begun where it is still yesterday."""
    try:
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
            in_zone(monkeypatch, zone)
            args = ("trainer.n_epochs=2", "callbacks.probe.step=7", "callbacks.probe.what=SIGTERM")
            assert command(*ARGS, *args, f"name={zone[8:12].lower()}").code == 143
        second, first = project.runs()  # by name
        assert (first.name[9:], second.name[9:]) == ("kiri", "pago")
        in_zone(monkeypatch, "Asia/Tokyo")
        assert command("resume=latest", "callbacks.probe.what=none").code == 0
        assert info(second)["status"] == "completed"
        assert info(first)["status"] == "interrupted"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_nothing_is_written_where_temporary_files_go(project, broken, straight):
    """TMPDIR is on another file system, from which nothing can be renamed into the run."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == broken.stat().st_dev:
        pytest.skip("this needs a second file system")
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        before = Path(temporary).stat().st_mtime_ns
        project.environment = {"TMPDIR": temporary}
        done = project.process(f"resume={broken}", "callbacks.probe.what=none")
        assert done.code == 0, done.text
        assert Path(temporary).stat().st_mtime_ns == before  # nothing came or went
    assert_ends_like(broken, straight)


# -- two at once -----------------------------------------------------------------------------------


def slowly(project, run, delay=1.0):
    """A real process that goes on with a run and takes its time."""
    return project.process(
        f"resume={run}",
        "callbacks.probe.what=none",
        f"data.source.delay={delay}",
        wait=False,
    )


def wait_until_running(run, child):
    deadline = time.monotonic() + 30
    while (told := info(run))["status"] != "running" or told["pid"] != child.pid:
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_use_by(done_text):
    found = re.search(r"is in use by process (\d+) on (\S+):", done_text)
    assert found, done_text
    return int(found[1]), found[2]


def test_a_second_resume_is_refused_at_once_and_a_killed_owner_blocks_nobody(
    project, go_on, broken, straight
):
    owner = slowly(project, broken)
    try:
        wait_until_running(broken, owner)
        began = time.monotonic()
        done = go_on(broken)
        assert time.monotonic() - began < 2
        assert done.code == 2
        assert in_use_by(done.err) == (owner.pid, socket.gethostname())
        assert owner.poll() is None
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    done = go_on(broken, "data.source.delay=0.001")
    assert done.code == 0, done.text
    assert_ends_like(broken, straight)


def test_of_two_resumes_at_once_one_wins(project, broken):
    for _ in range(2):
        both = [slowly(project, broken, 0.4) for _ in range(2)]
        deadline = time.monotonic() + 30
        while all(child.poll() is None for child in both):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        loser, winner = sorted(both, key=lambda child: child.poll() is None)
        _, err = loser.communicate()
        assert loser.returncode == 2
        assert in_use_by(err) == (winner.pid, socket.gethostname())
        wait_until_running(broken, winner)
        winner.send_signal(signal.SIGTERM)
        out, err = winner.communicate(timeout=20)
        assert winner.returncode == 143, out + err
        assert [r.step for r in records(broken)] == list(range(1, records(broken)[-1].step + 1))


def test_a_resume_waits_for_nobody_whose_lock_is_gone(broken, go_on):
    """The process that run.json names may live and be another one."""
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        told = info(broken) | {"status": "running", "pid": sleeper.pid}
        (broken / "run.json").write_text(json.dumps(told))
        assert go_on(broken).code == 0
    finally:
        sleeper.kill()
        sleeper.wait()
