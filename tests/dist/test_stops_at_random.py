"""SIGTERM again and again, at random moments of one run: no step is lost, no bit is different."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from expkit.checkpoint import CheckpointStore
from tests.cases.parts import assert_same
from tests.dist.project import (
    SMALL,
    TWO_PADDLE,
    Finished,
    Project,
    checkpoints,
    info,
    ranks_seen,
    records,
    samples,
    together,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMON = ("model.dropout=0.2", "checkpoint.save_every=7", "trainer.n_epochs=40")
STEPS = 240
"""Of the whole run; what is not trained between the stops is trained after them, at full speed."""


@dataclass(frozen=True)
class Chain:
    """A run and who is told to stop.

    Attributes:
        base: arguments of the command.
        targets: for each stop the rank that gets the signal; None for the command.
    """

    base: Sequence[str]
    targets: Sequence[int | None]


CHAINS = {
    "torch": Chain((SMALL, "driver=torch"), [None] * 8),
    "paddle_fleet": Chain(TWO_PADDLE, [None, 0, 1, None]),
}


@dataclass(frozen=True)
class Stop:
    """One of the stops.

    Attributes:
        finished: the command that was stopped.
        seconds: from the signal to its end.
        told: what ``run.json`` said then.
        kept: the checkpoints that were there then.
        trained: the last step that was recorded.
    """

    finished: Finished
    seconds: float
    told: dict[str, Any]
    kept: list[str]
    trained: int


@dataclass(frozen=True)
class Trained:
    """A chain of stops, and the same run undisturbed."""

    stops: list[Stop]
    last: Finished
    run: Path
    straight: Path


def stop(project: Project, base: Sequence[str], after: int, target: int | None, pause: float):
    """Start or go on, and send a signal some time after the first step of this part."""
    child = project.start(*base, *COMMON, "callbacks.probe.delay=0.02")
    run = project.wait_for_step(after + 1, child)
    time.sleep(pause)
    pid = child.pid if target is None else ranks_seen(run)[target]["pid"]
    os.kill(pid, signal.SIGTERM)
    sent = time.time()
    finished = project.finish(child)
    trained = records(run)[-1].step
    return Stop(finished, finished.ended - sent, info(run), checkpoints(run), trained)


def train(name: str, directory: Path) -> Trained:
    chain, chance = CHAINS[name], random.Random(name)
    straight = Project.make(directory / "straight")
    assert straight.run(*chain.base, *COMMON).code == 0
    project = Project.make(directory / "stopped")
    stops: list[Stop] = []
    for target in chain.targets:
        base = [*chain.base, "resume=latest"] if stops else chain.base
        after = stops[-1].trained if stops else 0
        stops.append(stop(project, base, after, target, chance.uniform(0.0, 0.25)))
    last = project.run(*chain.base, *COMMON, "resume=latest")
    return Trained(stops, last, project.run_directory(), straight.run_directory())


def train_all(directory: Path) -> dict[str, Trained]:
    """Each chain."""
    return together({name: lambda name=name: train(name, directory / name) for name in CHAINS})


@pytest.fixture(scope="module")
def chains(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(train_all)


@pytest.mark.parametrize("name", CHAINS)
def test_each_stop_saves_the_step_that_it_ends_with(chains, name):
    stops = chains[name].stops
    assert len(stops) == len(CHAINS[name].targets)
    for stopped in stops:
        assert stopped.finished.code == 143, stopped.finished.text
        assert stopped.seconds < 10
        assert "Traceback" not in stopped.finished.text
        assert (stopped.told["status"], stopped.told["reason"]) == ("interrupted", "SIGTERM")
        assert stopped.told["result"]["steps"] == stopped.trained
        assert stopped.kept[-1] == f"step-{stopped.trained:08d}"
    assert sorted({stopped.trained for stopped in stops}) == [s.trained for s in stops]


@pytest.mark.parametrize("name", CHAINS)
def test_no_step_is_lost_or_made_twice_and_the_end_is_the_same(chains, name):
    trained = chains[name]
    assert trained.last.code == 0, trained.last.text
    assert info(trained.run)["status"] == "completed"
    assert len(info(trained.run)["resumed"]) == len(trained.stops)
    assert list(samples(trained.run)) == list(range(1, STEPS + 1))
    assert samples(trained.run) == samples(trained.straight)
    for split in ("train", "eval"):
        found = [records(run, split) for run in (trained.run, trained.straight)]
        assert [(each.step, each.epoch, each.metrics) for each in found[0]] == [
            (each.step, each.epoch, each.metrics) for each in found[1]
        ]
    for which in ("last", "best"):
        (state, own), (other, theirs) = (
            CheckpointStore(run / "checkpoints").load(which)
            for run in (trained.run, trained.straight)
        )
        assert own.step == theirs.step
        assert_same(state, other)
