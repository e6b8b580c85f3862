"""Stop signals of schedulers and terminals, and those that come while a checkpoint is written."""

from __future__ import annotations

import os
import signal
import time

import pytest

from expkit.checkpoint import CheckpointStore
from tests.cases.parts import assert_same
from tests.cli.conftest import SMALL, info, records

CODES = {"SIGUSR1": 143, "SIGHUP": 129}
PROBE = ("callbacks=[probe]", "callbacks.probe.step=4")
MY_CALLBACKS = '''
import os
import signal

from expkit.core.events import Callback


class Probe(Callback):
    """Sends signals when step 4 is saved, or while that is still being written."""

    def __init__(self, step, what):
        self.step, self.signals = step, what.split("+")

    def save(self, context, state):
        if context.progress.step == self.step and self.signals[0] == "saving":
            self.send()

    def step_end(self, context):
        if context.progress.step == self.step + 1 and self.signals[0] == "writing":
            assert not (context.run_dir / f"checkpoints/step-{self.step:08d}").exists()
            self.send()

    def send(self):
        for name in self.signals[1:]:
            os.kill(os.getpid(), getattr(signal, name))
'''


@pytest.fixture(autouse=True)
def heard():
    """Signals mean what they mean in a terminal, also where the tests run under nohup."""
    before = {name: signal.getsignal(getattr(signal, name)) for name in CODES}
    for name in CODES:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


def checkpoints(run):
    return sorted(path.name for path in run.glob("checkpoints/step-*"))


def assert_ends_like(run, straight):
    """Two runs have left the same, but for times."""
    (state, own), (other, theirs) = (
        CheckpointStore(each / "checkpoints").load("last") for each in (run, straight)
    )
    assert own.step == theirs.step
    assert_same(state, other)
    for split in ("train", "eval"):
        found = [records(each, split) for each in (run, straight)]
        assert [(r.step, r.metrics) for r in found[0]] == [(r.step, r.metrics) for r in found[1]]


@pytest.mark.parametrize("name", CODES)
def test_the_signals_of_schedulers_and_terminals_save_and_lose_no_step(command, project, name):
    done = command(SMALL, *PROBE, f"callbacks.probe.what={name}")
    assert done.code == CODES[name]
    run = project.run()
    told = info(run)
    assert (told["status"], told["reason"], told["result"]["steps"]) == ("interrupted", name, 4)
    assert checkpoints(run) == ["step-00000004"]
    assert f"interrupted by {name} after step 4" in done.text
    assert command("resume=latest", "callbacks.probe.what=none").code == 0
    assert command(SMALL, *PROBE).code == 0
    assert_ends_like(run, max(project.runs()))


@pytest.mark.slow
@pytest.mark.parametrize("name", CODES)
def test_a_real_process_ends_within_seconds_of_such_a_signal(project, name):
    args = (SMALL, "trainer.n_epochs=1000", "data.source.delay=0.02")
    child = project.process(*args, wait=False)
    deadline = time.monotonic() + 30
    while not any(run.joinpath("metrics.jsonl").exists() for run in project.runs()):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(getattr(signal, name))
    out, err = child.communicate(timeout=10)
    assert child.returncode == CODES[name], out + err
    run = project.run()
    told = info(run)
    assert (told["status"], told["reason"]) == ("interrupted", name)
    assert checkpoints(run)[-1] == f"step-{told['result']['steps']:08d}"
    assert "Traceback" not in out + err


@pytest.fixture
def slow_disk(monkeypatch, project):
    """It takes 0.1 s until a file is on the disk, so that a checkpoint takes more than 0.5 s."""
    (project.path / "my_callbacks.py").write_text(MY_CALLBACKS)
    fsync = os.fsync

    def slow(descriptor):
        time.sleep(0.1)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "code", "kept"),
    [
        ("saving+SIGTERM", 143, ["step-00000004"]),
        ("writing+SIGTERM", 143, ["step-00000004", "step-00000005"]),
        ("writing+SIGUSR1", 143, ["step-00000004", "step-00000005"]),
        ("writing+SIGINT+SIGINT", 130, ["step-00000004"]),
    ],
)
def test_a_signal_during_a_save_leaves_whole_checkpoints_only(
    command, project, slow_disk, monkeypatch, what, code, kept
):
    args = (SMALL, *PROBE, "checkpoint.save_every=4", "checkpoint.keep_last=null")
    done = command(*args, f"callbacks.probe.what={what}")
    assert done.code == code, done.text
    assert "Traceback" not in done.text
    run = project.run()
    assert info(run)["status"] == "interrupted"
    assert checkpoints(run) == kept
    assert not list(run.rglob("*.tmp"))
    for name in kept:
        CheckpointStore(run / "checkpoints").load(run / "checkpoints" / name)
    monkeypatch.undo()
    monkeypatch.chdir(project.path)
    assert command(f"resume={run}", "callbacks.probe.what=none").code == 0
    assert command(*args, "callbacks.probe.what=none").code == 0
    assert_ends_like(run, max(project.runs()))
