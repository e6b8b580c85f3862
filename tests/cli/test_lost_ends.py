"""A training that has ended well, while the disk has not taken its end."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from expkit.run import status
from tests.cli.conftest import SMALL, info, records, tree, weights

ALL = ("checkpoint.keep_last=null",)


@pytest.fixture
def completed(command, project):
    """A run of 10 steps with a checkpoint after 5 and 10."""
    assert command(SMALL, *ALL).code == 0
    return max(project.runs())


@pytest.mark.parametrize("how", ["never_written", "damaged"])
def test_a_completed_run_whose_end_is_in_no_checkpoint_goes_on(command, completed, how):
    end = completed / "checkpoints/step-00000010"
    straight, seen = weights(completed), [record.step for record in records(completed)]
    if how == "damaged":
        (end / "MANIFEST.json").write_text("{}")
    else:
        shutil.rmtree(end)
    done = command(f"resume={completed}")
    assert done.code == 0, done.text
    told = "but its end is in no checkpoint, the last of which is of step 5: it goes on"
    assert f"has completed (10 steps), {told}" in done.out
    assert info(completed)["status"] == "completed"
    assert info(completed)["result"]["steps"] == 10
    assert [record.step for record in records(completed)] == seen
    assert weights(completed) == straight
    last = command(f"resume={completed}")
    assert "nothing is left to do" in last.out


def test_an_earlier_checkpoint_of_a_run_whose_end_is_kept_is_no_reason_to_go_on(command, completed):
    before = tree(completed)
    done = command(f"resume={completed / 'checkpoints/step-00000005'}")
    assert "nothing is left to do" in done.out
    assert tree(completed) == before


def test_a_run_that_keeps_what_was_asked_for_only_may_end_without(command, project):
    stop = ("callbacks=[probe]", "callbacks.probe.what=SIGTERM")
    done = command(SMALL, "checkpoint.save_every=null", *stop)
    assert done.code == 143
    (run,) = project.runs()
    assert command(f"resume={run}", "callbacks=[]").code == 0
    assert info(run)["result"]["steps"] == 10
    assert (run / "checkpoints/step-00000003").is_dir()
    assert not (run / "checkpoints/step-00000010").exists()
    done = command(f"resume={run}")
    assert "nothing is left to do" in done.out


@pytest.mark.parametrize("how", ["full", "gone"])
def test_a_result_that_cannot_be_kept_is_told_all_the_same(command, monkeypatch, project, how):
    write = status.write_atomically

    def refuse(path, data):
        if b'"completed"' in data:
            if how == "gone":
                shutil.rmtree(path.parent)
            else:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    monkeypatch.setattr(status, "write_atomically", refuse)
    done = command(SMALL)
    assert done.code == 1, done.text
    reason = {"full": "No space left on device", "gone": "No such file or directory"}[how]
    for text in ("best     accuracy", "time     ", "10 steps", "saved    outputs/"):
        assert text in done.out
    assert done.err.count("the run has completed, but its result is not kept: cannot write") == 1
    assert f"run.json: {reason}" in done.err
    assert "Traceback" not in done.text
