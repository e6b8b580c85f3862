"""A run that was ended before its first checkpoint: the same command begins it anew, in place."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.conftest import SMALL, config, info, overrides, records, tree, weights

FAILS = ("callbacks=[probe]", "callbacks.probe.what=raise")
"""An error in step 3 of 10; the first checkpoint would come after step 5."""
MENDED = "callbacks.probe.what=none"
ANEW = "there is no checkpoint to go on from: the run begins anew in its directory"
STEPS = list(range(1, 11))


def failed(command, project, *args: str):
    """A run that has failed before its first checkpoint."""
    done = command(SMALL, *FAILS, *args)
    assert done.code == 1
    run = max(project.runs())
    assert not list(run.glob("checkpoints/step-*"))
    return run


@pytest.mark.parametrize("which", ["named", "latest"])
def test_it_begins_anew_in_its_directory_and_says_so(command, project, which):
    run = failed(command, project, "model.hidden=[7]", "logger=[tensorboard,csv]")
    begun = info(run)["started"]
    done = command("resume=latest" if which == "latest" else f"resume={run}", MENDED)
    assert done.code == 0, done.text
    assert done.text.count(ANEW) == 1
    assert project.runs() == [run]
    told = info(run)
    assert (told["status"], told["result"]["steps"], told["started"]) == ("completed", 10, begun)
    assert len(told["resumed"]) == 1
    assert config(run)["resume"] is None
    assert overrides(run)[-1] == MENDED
    assert [record.step for record in records(run)] == STEPS
    table = (run / "metrics.csv").read_text().splitlines()
    assert sum(",train,loss," in line for line in table) == 10
    command(SMALL, "model.hidden=[7]")  # the same without the failure
    assert weights(max(project.runs())) == weights(run)


def test_tensorboard_shows_each_step_once(command, project):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = failed(command, project)
    assert command(f"resume={run}", MENDED).code == 0
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == STEPS


def test_it_begins_with_the_weights_that_it_began_with(command, project):
    command(SMALL, "seed=5")
    source = project.run()
    run = failed(command, project, f"init_from={source}")
    done = command(f"resume={run}", MENDED)
    assert done.code == 0, done.text
    assert "weights from" in done.text
    assert config(run)["init_from"] == str(source)
    command(SMALL, f"init_from={source}")
    assert weights(max(project.runs())) == weights(run)


def test_where_those_weights_are_gone_it_is_refused_and_stays_as_it_was(command, project):
    command(SMALL)
    source = project.run()
    run = failed(command, project, f"init_from={source}")
    shutil.rmtree(source)
    before = tree(run)
    done = command(f"resume={run}", MENDED)
    assert done.code == 2
    assert "init_from: " in done.err
    assert str(source) in done.err
    assert tree(run) == before


def test_a_run_that_keeps_nothing_and_was_stopped_begins_anew(command, project):
    args = ("checkpoint=none", "callbacks=[probe]", "callbacks.probe.what=SIGTERM")
    assert command(SMALL, *args).code == 143
    run = project.run()
    done = command(f"resume={run}", MENDED)
    assert done.code == 0, done.text
    assert ANEW in done.text
    assert info(run)["result"]["steps"] == 10


def test_a_completed_run_without_a_checkpoint_is_refused(command, project):
    command(SMALL, "checkpoint=none")
    run = project.run()
    before = tree(run)
    for more in ((), ("trainer.n_epochs=5",)):
        done = command(f"resume={run}", *more)
        assert done.code == 2
        assert "has no checkpoint" in done.err
    assert tree(run) == before


def test_an_evaluation_is_no_run_to_go_on_with(command, project):
    command(SMALL)
    source = project.run()
    done = command("task=evaluate", f"init_from={source}", "data.source.kind=raises")
    assert done.code != 0
    (evaluation,) = set(project.runs()) - {source}
    done = command(f"resume={evaluation}")
    assert done.code == 2
    assert "has no checkpoint" in done.err


def test_where_all_checkpoints_are_damaged_nothing_begins_anew(command, project):
    command(SMALL, "callbacks=[probe]", "callbacks.probe.what=SIGTERM")
    run = project.run()
    (only,) = run.glob("checkpoints/step-*")
    (only / "state.json").write_text("{}")
    done = command(f"resume={run}")
    assert done.code == 1
    assert "every checkpoint is damaged" in done.text
    assert ANEW not in done.text
    assert [record.step for record in records(run)] == [1, 2, 3]


def test_a_checkpoint_that_comes_in_between_is_not_lost(command, project, monkeypatch):
    command(SMALL, "seed=2")
    other = project.run()
    run = failed(command, project)
    from expkit import worker

    def build(config, path, files):
        shutil.copytree(other / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
        return real(config, path, files)

    real = worker.Builder
    monkeypatch.setattr(worker, "Builder", build)
    done = command(f"resume={run}", MENDED)
    assert done.code == 1
    assert "give the command again" in done.text
    assert [record.step for record in records(run)] == [1, 2]


def test_what_killed_processes_left_half_written_is_cleared_away(command, project):
    leftovers = (".run.json.0123456789ab.tmp", "checkpoints/.step-00000005.0123456789ab.tmp/a")
    anew = failed(command, project)
    command(SMALL, "callbacks=[probe]", "callbacks.probe.what=SIGTERM", "name=goes_on")
    goes_on = max(project.runs())
    for run in (anew, goes_on):
        for name in leftovers:
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text("half")
    command("task=evaluate", f"init_from={goes_on}")  # reads, and clears nothing
    assert len(list(goes_on.rglob("*.tmp"))) == 2
    for run in (anew, goes_on):
        done = command(f"resume={run}", MENDED)
        assert done.code == 0, done.text
        assert not list(run.rglob("*.tmp"))
