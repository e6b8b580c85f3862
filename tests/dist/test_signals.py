"""Stop signals to the command or to any rank: all stop at one step, and a resume goes on there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.dist.project import (
    TWO_PADDLE,
    TWO_TORCH,
    Finished,
    Project,
    checkpoints,
    epochs,
    info,
    ranks_seen,
    records,
    together,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Row:
    """A signal in the middle of a run.

    Attributes:
        base: arguments of the command.
        number: the signal.
        target: the rank that gets it; None for the command.
        again: arguments of the command that goes on; None where there is none.
    """

    base: Sequence[str]
    number: signal.Signals
    target: int | None = None
    again: Sequence[str] | None = None


ROWS = {
    "SIGTERM": Row(TWO_TORCH, signal.SIGTERM, again=()),
    "SIGTERM to rank 0": Row(TWO_TORCH, signal.SIGTERM, 0, again=["driver=torch"]),
    "SIGTERM to rank 1": Row(TWO_TORCH, signal.SIGTERM, 1, again=["driver.num_processes=3"]),
    "SIGINT": Row(TWO_TORCH, signal.SIGINT),
    "SIGTERM to rank 1 of Paddle": Row(TWO_PADDLE, signal.SIGTERM, 1, again=["driver=paddle"]),
}


@dataclass(frozen=True)
class Stopped:
    """What a signal did.

    Attributes:
        finished: the command that got it.
        seconds: from the signal to its end.
        left: processes that were left.
        told: what ``run.json`` said then.
        checkpoints: those that were there then.
        resumed: the command that went on.
        run: the run directory.
    """

    finished: Finished
    seconds: float
    left: list[int]
    told: dict[str, Any]
    checkpoints: list[str]
    resumed: Finished | None
    run: Path


def stop(row: Row, directory: Path) -> Stopped:
    project = Project.make(directory)
    child = project.start(*row.base, "data.source.n=80", "callbacks.probe.delay=0.1")
    run = project.wait_for_step(3, child)
    os.kill(child.pid if row.target is None else ranks_seen(run)[row.target]["pid"], row.number)
    sent = time.time()
    finished = project.finish(child)
    left, told, kept = project.processes, info(run), checkpoints(run)
    resumed = None
    if row.again is not None:
        resumed = project.run("resume=latest", "callbacks.probe.delay=0.0", *row.again)
    return Stopped(finished, finished.ended - sent, left, told, kept, resumed, run)


def stop_in_every_way(directory: Path) -> dict[str, Stopped]:
    """Each row."""
    return together(
        {name: lambda name=name, row=row: stop(row, directory / name) for name, row in ROWS.items()}
    )


@pytest.fixture(scope="module")
def stops(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(stop_in_every_way)


@pytest.mark.parametrize("name", ROWS)
def test_all_ranks_stop_at_one_step_and_save_it(stops, name):
    stopped, number = stops[name], ROWS[name].number
    assert stopped.finished.code == 128 + number, stopped.finished.text
    assert stopped.seconds < 10
    assert stopped.left == []
    assert "Traceback" not in stopped.finished.text
    assert stopped.finished.text.count(f"interrupted by {number.name}") == 1
    assert (stopped.told["status"], stopped.told["reason"]) == ("interrupted", number.name)
    step = stopped.told["result"]["steps"]
    assert 3 <= step < 40
    assert stopped.checkpoints[-1] == f"step-{step:08d}"
    inside = [each for each in stopped.checkpoints if int(each.removeprefix("step-")) % 20]
    assert inside in ([], [f"step-{step:08d}"])


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.again is not None])
def test_a_resume_on_any_number_of_ranks_trains_each_sample_once(stops, name):
    stopped = stops[name]
    assert stopped.resumed.code == 0, stopped.resumed.text
    assert info(stopped.run)["status"] == "completed"
    assert info(stopped.run)["result"]["steps"] == 40
    assert [record.step for record in records(stopped.run)] == list(range(1, 41))
    assert epochs(stopped.run) == {0: list(range(80)), 1: list(range(80))}


def test_a_second_sigint_ends_the_command_in_the_middle_of_a_step(project):
    pytest.importorskip("torch")
    child = project.start(*TWO_TORCH, "callbacks.probe.delay=20")
    while not project.runs() or len(list(project.run_directory().glob("seen/*"))) < 2:
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    time.sleep(0.5)  # both are in the first step
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    began = time.time()
    child.send_signal(signal.SIGINT)
    stopped = project.finish(child)
    assert stopped.code == 130, stopped.text
    assert stopped.ended - began < 6
    assert project.processes == []
    assert "Traceback" not in stopped.text
    assert stopped.text.count("interrupted by SIGINT") == 1
    run = project.run_directory()
    assert info(run)["status"] == "interrupted"
    assert checkpoints(run) == []


def test_a_signal_before_the_ranks_are_there_ends_the_command(project):
    pytest.importorskip("torch")
    child = project.start(*TWO_TORCH)
    while not project.runs():
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    stopped = project.finish(child)
    assert stopped.code == 143, stopped.text
    assert stopped.text.count("interrupted by SIGTERM") == 1
    assert info(project.run_directory())["status"] == "interrupted"
