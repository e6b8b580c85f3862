"""A resume that cannot begin says what differs and what mends it; the run stays as it was."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.conftest import SMALL, info, records, tree, weights


def completed(command, project):
    """A run with a checkpoint every 4 of 10 steps: inside epochs, and at the end."""
    done = command(SMALL, "checkpoint.keep_last=null", "checkpoint.save_every=4")
    assert done.code == 0, done.text
    return project.run()


def refused(command, run, *args: str, checkpoint: str = "step-00000004"):
    before = tree(run)
    done = command(f"resume={run}/checkpoints/{checkpoint}", *args)
    assert done.code == 2, done.text
    after = tree(run)
    del before["train.log"], after["train.log"]
    assert after == before
    assert "Traceback" not in done.text
    return done.text


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("model.hidden=[3]", "of another model"),
        ("optimizer=sgd", "optimizer default: the checkpoint has that of another optimizer (exp_"),
        ("data.source.n=24", "another training set: this one has 24 samples, it had 20"),
    ],
)
def test_what_is_of_something_else_is_told_with_the_arguments_to_leave_out(
    command, project, changed, told
):
    text = refused(command, completed(command, project), SMALL, changed, "trainer.n_epochs=3")
    assert told in text
    assert text.rstrip().endswith(f"To go on, leave out {shlex.quote(changed)}")
    assert "_target_" not in text


def test_another_model_by_a_changed_file_is_told_beside_what_it_has_changed(command, project):
    run = completed(command, project)
    file = project.path / "conf/experiment/small.yaml"
    file.write_text(file.read_text().replace("hidden: [6]", "hidden: [5]"))
    text = refused(command, run)
    assert "of another model" in text
    assert text.rstrip().endswith("Other than it was: model.hidden: [6] -> [5]")


@pytest.mark.parametrize(
    ("changed", "told", "mended_by"),
    [
        ("monitor=-loss", "monitor: is -loss", "monitor=accuracy"),
        ("data.batch_size=5", "samples per step 5 (was 4)", "init_from=RUN in place of resume=RUN"),
    ],
)
def test_what_cannot_be_other_on_a_resume(command, project, changed, told, mended_by):
    text = refused(command, completed(command, project), changed, checkpoint="step-00000008")
    assert told in text
    assert f"(try: {mended_by})" in text


@pytest.mark.parametrize("checkpoint", ["step-00000004", "step-00000010"])
def test_other_data_of_the_same_length(command, project, checkpoint):
    run = completed(command, project)
    file = project.path / "my_data.py"
    file.write_text(file.read_text().replace("train, held = rows(n)", "train, held = rows(n, 3)"))
    text = refused(command, run, "trainer.n_epochs=3", checkpoint=checkpoint)
    assert "another training set: this one has other values of x" in text
    assert "init_from=RUN in place of resume=RUN" in text


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["torch", "paddle"])
def test_another_framework(command, project, driver):
    pytest.importorskip(driver)
    text = refused(command, completed(command, project), f"driver={driver}")
    assert f"of a run on numpy, this one is on {driver}" in text
    assert "init_from=RUN in place of resume=RUN" in text
    assert f"leave out driver={driver}" in text
    assert "_target_" not in text


def test_a_killed_resume_from_an_earlier_checkpoint_leaves_a_run_that_goes_on_exactly(
    command, project
):
    run = completed(command, project)
    wanted = weights(run)
    killed = project.process(
        f"resume={run}/checkpoints/step-00000004",
        "callbacks=[probe]",
        "callbacks.probe.step=5",  # after it there is an evaluation, and a save
        "callbacks.probe.what=SIGKILL",
    )
    assert killed.code == -9
    assert info(run)["status"] == "running"
    assert {path.name for path in run.glob("checkpoints/step-*")} == {"step-00000004"}
    done = command(f"resume={run}", "callbacks.probe.what=none")
    assert done.code == 0, done.text
    assert [record.step for record in records(run)] == list(range(1, 11))
    assert [record.step for record in records(run, "eval")] == [5, 10]
    assert weights(run) == wanted
