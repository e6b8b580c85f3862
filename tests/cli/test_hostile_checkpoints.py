"""The command meets checkpoints that were made to do harm, and run directories from elsewhere."""

from __future__ import annotations

import shutil
import time

import pytest

from tests.cli.conftest import SMALL, info, records, tree
from tests.hostile_files import CORPUS, NAME

pytestmark = pytest.mark.slow

STOP = ("callbacks=[probe]", "callbacks.probe.what=SIGTERM")
"""A stop signal after step 3 of 10."""

BESIDE = [
    "torch_file_in_a_checkpoint",
    "pickle_as_weights",
    "linked_checkpoint",
    "pipe_as_checkpoint",
]
ALONE = ["torch_file", "object_arrays", "linked_checkpoint", "archive_of_ways_out", "names_of_code"]


@pytest.fixture
def mark(project):
    """What appears where a payload is executed."""
    return project.path / "mark"


@pytest.fixture
def run(command, project):
    """A run that was stopped."""
    assert command(SMALL, *STOP).code == 143
    return project.run()


@pytest.mark.parametrize("name", BESIDE)
def test_a_run_goes_on_from_its_own_checkpoint_past_a_hostile_one(command, run, mark, name):
    CORPUS[name](run / "checkpoints", mark)
    done = command(f"resume={run}")
    assert done.code == 0, done.text
    assert f"checkpoints/{NAME}: " in done.text
    assert "step 3), epoch" in done.out
    assert [record.step for record in records(run)] == list(range(1, 11))
    assert not mark.exists()


@pytest.mark.parametrize("key", ["resume", "init_from"])
@pytest.mark.parametrize("name", ALONE)
def test_nothing_begins_with_a_hostile_checkpoint(command, run, mark, name, key):
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    place = CORPUS[name](run / "checkpoints", mark)
    before = tree(run)
    began = time.monotonic()
    done = command(*([] if key == "resume" else [SMALL]), f"{key}={place}")
    assert time.monotonic() - began < 5
    assert done.code in (1, 2), done.text
    assert "Traceback" not in done.text
    assert not mark.exists()
    assert info(run)["status"] == "interrupted"
    after = tree(run)
    del before["train.log"], after["train.log"]
    assert after == before
