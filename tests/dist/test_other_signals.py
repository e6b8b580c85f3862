"""SIGUSR1 and SIGHUP to a command with two ranks, or to one of them."""

from __future__ import annotations

import os
import signal
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
    info,
    ranks_seen,
    samples,
    together,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = {
    "SIGUSR1": (TWO_TORCH, signal.SIGUSR1, None, 143),
    "SIGUSR1 to rank 1 of Paddle": (TWO_PADDLE, signal.SIGUSR1, 1, 143),
    "SIGHUP to rank 0": (TWO_TORCH, signal.SIGHUP, 0, 129),
}


@dataclass(frozen=True)
class Stopped:
    """What a signal did, and what came of going on: None where nothing did."""

    finished: Finished
    told: dict[str, Any]
    kept: list[str]
    resumed: Finished | None
    run: Path


def stop(name: str, directory: Path) -> Stopped:
    base, number, target, _ = ROWS[name]
    project = Project.make(directory)
    child = project.start(*base, "data.source.n=80", "callbacks.probe.delay=0.1")
    run = project.wait_for_step(3, child)
    os.kill(child.pid if target is None else ranks_seen(run)[target]["pid"], number)
    finished = project.finish(child)
    told, kept = info(run), checkpoints(run)
    resumed = None
    if target is None:
        resumed = project.run("resume=latest", "callbacks.probe.delay=0.0")
    return Stopped(finished, told, kept, resumed, run)


def stop_all(directory: Path) -> dict[str, Stopped]:
    """Each row."""
    calls = {name: lambda name=name: stop(name, directory / name) for name in ROWS}
    return together(calls)


@pytest.fixture(scope="module")
def stops(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what is ignored here is there, too
    try:
        return once(stop_all)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("name", ROWS)
def test_all_ranks_stop_at_one_step_and_save_it(stops, name):
    stopped, (_, number, _, code) = stops[name], ROWS[name]
    assert stopped.finished.code == code, stopped.finished.text
    assert "Traceback" not in stopped.finished.text
    assert stopped.finished.text.count(f"interrupted by {number.name}") == 1
    assert (stopped.told["status"], stopped.told["reason"]) == ("interrupted", number.name)
    assert stopped.kept[-1] == f"step-{stopped.told['result']['steps']:08d}"
    if stopped.resumed is not None:
        assert stopped.resumed.code == 0, stopped.resumed.text
        assert list(samples(stopped.run)) == list(range(1, 41))
