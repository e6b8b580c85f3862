"""Evaluating the weights of an earlier run."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.conftest import SMALL, config, info, records, tree


def evaluated(command, project, *args: str) -> dict[str, float]:
    before = {str(run): tree(run) for run in project.runs()}
    done = command("task=evaluate", *args)
    assert done.code == 0, done.text
    assert {str(run): tree(run) for run in project.runs() if str(run) in before} == before
    (new,) = {str(run) for run in project.runs()} - set(before)
    told = info(project.path / new)
    assert (told["status"], told["task"]) == ("completed", "evaluate")
    assert records(project.path / new, "eval")[0].metrics == told["result"]["metrics"]
    return told["result"]["metrics"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("model.hidden=[9]", "optimizer.lr=0.03", "trainer.clip_norm=1.0"),
        ("loss=mse", "metrics=none", "monitor=-loss", "loss.target=y", "model.out_features=1"),
        ("debug=fast",),
        ("trainer.limit_eval_batches=1", "data.eval_batch_size=3"),
        ("trainer.overfit_batches=2", "optimizer=sgd", "schedule=cosine"),
        ("seed=7", "name=other", "tags=[a]", "logger=none", "checkpoint.keep_last=3"),
    ],
    ids=lambda args: " ".join(args) or "as it is",
)
def test_the_metrics_are_those_of_the_best_evaluation_exactly(command, project, args):
    done = command(SMALL, *args)
    assert done.code == 0, done.text
    run = project.run()
    assert evaluated(command, project, f"init_from={run}") == info(run)["result"]["best_eval"]


def test_latest_is_the_training_that_left_a_checkpoint_last(command, project):
    command(SMALL, "seed=1")
    run = project.run()
    command(SMALL, "data.source.kind=bad_item", "checkpoint=none")
    best = info(run)["result"]["best_eval"]
    assert evaluated(command, project, "init_from=latest") == best
    (new,) = [path for path in project.runs() if info(path)["task"] == "evaluate"]
    assert config(new)["init_from"] == str(run.relative_to(project.path))
    assert config(new)["seed"] == 1


def test_an_evaluation_takes_over_the_name_of_its_run(command, project):
    command(SMALL, "name=mine")
    evaluated(command, project, f"init_from={project.run()}")
    evaluated(command, project, f"init_from={project.runs()[0]}", "name=other")
    names = [info(run)["name"] for run in project.runs() if info(run)["task"] == "evaluate"]
    assert sorted(names) == ["mine", "other"]


def test_the_best_is_taken_where_the_last_is_another(command, project):
    command(SMALL, "trainer.n_epochs=6", "optimizer=sgd", "optimizer.lr=3.0", "monitor=-loss")
    run = project.run()
    result = info(run)["result"]
    assert result["metrics"] != result["best_eval"]  # else this shows nothing
    assert evaluated(command, project, f"init_from={run}") == result["best_eval"]


def test_one_checkpoint_is_evaluated_by_its_path(command, project):
    command(SMALL, "checkpoint.keep_last=null")
    run = project.run()
    for record in records(run, "eval"):
        path = f"init_from={run}/checkpoints/step-{record.step:08d}"
        assert evaluated(command, project, path) == record.metrics


def test_the_last_is_taken_from_a_run_without_a_best(command, project):
    command(SMALL, "monitor=null")
    run = project.run()
    assert info(run)["result"]["best_eval"] == {}
    found = evaluated(command, project, f"init_from={run}")
    assert found == records(run, "eval")[-1].metrics


def test_other_data_can_be_given(command, project):
    command(SMALL, "data.source.n=40")
    run = project.run()
    found = evaluated(
        command, project, f"init_from={run}", "data.source.kind=good", "data.eval_batch_size=1"
    )
    assert found["accuracy"] == info(run)["result"]["best_eval"]["accuracy"]
    new = max(project.runs())
    assert config(new)["data"]["source"]["n"] == 40  # the run's own, where nothing else is given
    assert config(new)["data"]["eval_batch_size"] == 1


@pytest.mark.parametrize("path", ["nowhere", "conf", "outputs"])
def test_a_path_that_leads_nowhere_is_refused_before_anything_is_made(command, project, path):
    command(SMALL)
    done = command("task=evaluate", SMALL, f"init_from={path}")
    assert (done.code, done.out) == (2, "")
    assert path in done.err
    assert len(done.err.splitlines()) == 2
    assert len(project.runs()) == 1


def test_damaged_checkpoints_are_an_error_in_words(command, project):
    command(SMALL)
    source = project.path / "copy"
    shutil.copytree(project.run(), source)
    for part in source.glob("checkpoints/*/model.safetensors"):
        part.write_bytes(part.read_bytes()[:-4])
    done = command("task=evaluate", f"init_from={source}")
    assert done.code == 1
    assert "every checkpoint is damaged" in done.text
    assert "Traceback" not in done.text


def test_code_that_a_runs_overrides_name_must_be_given_again(command, project):
    target = "data.source._target_=my_data.tiny"
    command(SMALL, target)
    run = project.run()
    done = command("task=evaluate", f"init_from={run}")
    assert done.code == 2
    assert target in done.err
    found = evaluated(command, project, f"init_from={run}", target)
    assert found == info(run)["result"]["best_eval"]


def test_code_of_the_training_alone_does_not_matter_to_an_evaluation(command, project):
    command(SMALL, "callbacks=[probe]", "callbacks.probe._target_=my_callbacks.Probe")
    run = project.run()
    assert evaluated(command, project, f"init_from={run}") == info(run)["result"]["best_eval"]


def test_options_of_the_training_are_refused_for_an_evaluation(command, project):
    command(SMALL)
    done = command("task=evaluate", f"init_from={project.run()}", "trainer.n_epochs=3")
    assert done.code == 2
    assert "trainer.n_epochs" in done.err


def test_an_evaluation_without_an_evaluation_set_is_an_error(command, project):
    command(SMALL, "data.source.kind=no_eval", "monitor=null")
    done = command("task=evaluate", f"init_from={project.run()}")
    assert done.code == 1
    assert "no evaluation set" in done.text
