"""Row C1 in its own numbers: 40 samples in batches of 4, two epochs of 10 steps."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

from expkit.callbacks import ExponentialMovingAverage
from expkit.checkpoint import CheckpointStore
from expkit.core.events import Callback
from expkit.schedules import Cosine
from tests.cases.parts import Consumed, Probe, assert_same, interrupted, make_trainer, resumed

OPTIONS = {
    "n": 40,
    "n_epochs": 2,
    "mlp": {"dropout": 0.5},
    "eval_on": 6,
    "eval_every": 3,
    "log_every": 2,
    "monitor": "-loss",
    "clip_norm": 1.0,
}


def make(framework, root, *callbacks):
    """A trainer that saves every third step."""
    return make_trainer(
        framework,
        checkpoint=CheckpointStore(root, background=False),
        callbacks=[*callbacks, ExponentialMovingAverage(decay=0.9)],
        schedule=Cosine(),
        save_every=3,
        **OPTIONS,
    )


@pytest.fixture
def memory_path(tmp_path):
    """A directory in memory: the disk itself is not at stake here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The undisturbed run by framework: its trainer, samples by step, and last state on disk."""
    runs = {}

    def get(framework):
        if framework not in runs:
            root, consumed = tmp_path_factory.mktemp(framework), Consumed()
            trainer = make(framework, root, consumed)
            assert trainer.fit().steps == 20
            runs[framework] = trainer, consumed.rows, CheckpointStore(root).load("last")[0]
        return runs[framework]

    return get


class Killed(BaseException):
    """Ends a run as a kill does: nothing is saved for it."""


class Kill(Callback):
    """Comes in the middle of a step, after its batch was read."""

    def __init__(self, step, kill):
        self.step, self.kill = step, kill

    def backward_end(self, context, loss):
        if context.progress.step + 1 == self.step:
            self.kill()


def abandon():
    raise Killed


def test_a_run_that_is_killed_twice_trains_each_batch_once(framework, tmp_path, straight):
    """Killed after step 3 and after step 6: steps 7 to 20 are those of the undisturbed run."""
    trainer, order, kept = straight(framework)
    rows, records = [], []
    for before, step in ((0, 3), (3, 6), (6, None)):
        consumed = Consumed()
        kill = Kill(None if step is None else step + 1, abandon)
        part = make(framework, tmp_path, consumed, kill)
        if before:
            resumed(part, tmp_path)
        assert part.progress.step == before
        if step is None:
            part.fit()
        else:
            with pytest.raises(Killed):
                part.fit()
        counted = [row for row in consumed.rows if step is None or row[1] <= step]
        assert [number for _, number, _ in counted] == list(range(before + 1, (step or 20) + 1))
        rows += counted
        records += part._logger.rows
    assert rows == order
    for epoch in (0, 1):
        assert sorted(i for of, _, seen in rows if of == epoch for i in seen) == list(range(40))
    assert records == trainer._logger.rows
    assert_same(trainer.state(), part.state())
    assert_same(kept, CheckpointStore(tmp_path).load("last")[0])


def test_a_process_that_is_killed_goes_on_where_it_had_saved(tmp_path, straight):
    """The same with SIGKILL."""
    _, order, kept = straight("numpy")
    file = tmp_path / "rows"

    class Written(Consumed):
        def step_end(self, context):
            with file.open("a") as lines:
                lines.write(json.dumps(self.rows[-1]) + "\n")

    for step in (4, 8, None):
        child = os.fork()
        if child == 0:
            try:
                kill = Kill(step, lambda: os.kill(os.getpid(), signal.SIGKILL))
                trainer = make("numpy", tmp_path / "run", Written(), kill)
                if (tmp_path / "run").exists():
                    resumed(trainer, tmp_path / "run")
                trainer.fit()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) == (step is not None)
    rows = [tuple(json.loads(line)) for line in file.read_text().splitlines()]
    assert [step for _, step, _ in rows] == [1, 2, 3, 4, 5, 6, 7, *range(7, 21)]
    assert [row for place, row in enumerate(rows) if place != 6] == order  # step 7 was lost once
    assert_same(kept, CheckpointStore(tmp_path / "run").load("last")[0])


def check(framework, root, straight, stops):
    """Stop signals during these steps change nothing."""
    trainer, order, _ = straight(framework)
    rows, records = [], []
    for stop in [*stops, None]:
        consumed, probe = Consumed(), Probe()
        part = make(framework, root, consumed, probe)
        if rows:
            resumed(part, root)
        if stop is None:
            part.fit()
        else:
            interrupted(part, probe, stop)
        rows += consumed.rows
        records += part._logger.rows
    assert (rows, records) == (order, trainer._logger.rows)
    assert part.result.best_eval == trainer.result.best_eval
    assert_same(trainer.state(), part.state())


@pytest.mark.parametrize("step", [*range(1, 11), 19, 20])
def test_a_stop_after_any_step_changes_nothing(memory_path, straight, step):
    check("numpy", memory_path, straight, [step])


def test_two_stops_within_one_epoch_change_nothing(memory_path, straight):
    for stops in ([1, 2], [1, 9], [4, 5], [4, 10], [8, 9]):
        check("numpy", memory_path / str(stops), straight, stops)


def test_a_stop_after_each_step_changes_nothing(memory_path, straight):
    check("numpy", memory_path, straight, list(range(1, 20)))


@pytest.mark.parametrize("stops", [[1], [9, 10], [2, 13]], ids=str)
@pytest.mark.parametrize("driver", ["torch", "paddle"])
def test_stops_on_a_framework_change_nothing(driver, memory_path, straight, stops):
    pytest.importorskip(driver)
    check(driver, memory_path, straight, stops)


def test_a_kill_in_the_first_steps_leaves_nothing_to_go_on_from(tmp_path):
    with pytest.raises(Killed):
        make("numpy", tmp_path, Kill(2, abandon)).fit()
    assert CheckpointStore(tmp_path).last() is None
    np.testing.assert_equal(sorted(tmp_path.iterdir()), [])
