"""Predictions of the weights of an earlier run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from expkit.core.predictor import Predictor
from tests.cli.conftest import SMALL, config, info, records, tree
from tests.cli.test_disk_faults import mounted

OWN_SETS = """
from expkit.data import Splits

from my_data import rows


def named(n, has_targets=True):
    made = rows(n)
    made["id"] = [f"ä{index}" for index in range(n)]
    if not has_targets:
        del made["y"]
    return made


def sets(form):
    wanted = named(11, has_targets=False)
    if form == "beside":
        return Splits(rows(20), rows(6), predict=wanted)
    if form == "several":
        return Splits(None, predict={"a": wanted, "b": wanted})
    if form == "dict":
        return {"predict": wanted}
    if form == "many":
        return rows(8), rows(9000)
    return Splits(rows(20), {"dev": named(7), "held/out": named(5)})
"""


SETS = "data=sets"
OWN_OPTION = """
source:
  _target_: my_sets.sets
  form: named
info:
  num_features: 4
  num_outputs: 2
"""


def lines(run, name="predictions.jsonl"):
    return [json.loads(line) for line in (run / name).read_bytes().splitlines()]


def predicted(command, project, *args: str):
    """The directory of a prediction, which leaves all others as they are."""
    before = {str(run): tree(run) for run in project.runs()}
    done = command("task=predict", *args)
    assert done.code == 0, done.text
    assert {str(run): tree(run) for run in project.runs() if str(run) in before} == before
    (new,) = {str(run) for run in project.runs()} - set(before)
    run = project.path / new
    told = info(run)
    assert (told["status"], told["task"]) == ("completed", "predict")
    written = told["result"]["predictions"]
    assert sorted(written) == sorted(path.name for path in run.glob("predictions*"))
    assert {name: len(lines(run, name)) for name in written} == written
    for name, count in written.items():
        assert f"predict  {count} samples in {name}" in done.out
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    return run


@pytest.fixture
def trained(command, project):
    assert command(SMALL).code == 0
    return project.run()


@pytest.fixture
def sets(project):
    (project.path / "my_sets.py").write_text(OWN_SETS)
    (project.path / "conf/data/sets.yaml").write_text(OWN_OPTION)


def test_each_sample_has_a_line_from_which_the_accuracy_follows(command, project, trained):
    run = predicted(command, project, f"init_from={trained}")
    rows = lines(run)
    assert [row["index"] for row in rows] == list(range(10))
    assert all(set(row) == {"index", "label", "probability"} for row in rows)
    assert all(0.5 <= row["probability"] <= 1 for row in rows)
    x = np.sin(np.arange(40, dtype=np.float32).reshape(10, 4) + 1000)
    right = [row["label"] for row in rows] == (x.sum(axis=1) > 0)
    assert right.mean() == info(trained)["result"]["best_eval"]["accuracy"]


def test_a_prediction_records_no_numbers_and_draws_no_curves(command, project, trained):
    run = predicted(command, project, f"init_from={trained}")
    assert info(run)["result"]["metrics"] == {}
    assert records(run, "eval") == records(run, "train") == []
    assert not (run / "tensorboard").exists()
    assert not (run / "checkpoints").exists()


def test_two_predictions_are_the_same_in_two_directories(command, project, trained):
    first = predicted(command, project, "init_from=latest")
    second = predicted(command, project, "init_from=latest", "data.eval_batch_size=10")
    assert lines(first) == lines(second)
    assert config(second)["init_from"] == str(trained.relative_to(project.path))


def test_real_numbers_are_predicted_by_the_loss_that_judges_them(command, project):
    loss = ("loss=mse", "metrics=none", "monitor=-loss", "model.out_features=1")
    assert command(SMALL, *loss).code == 0
    rows = lines(predicted(command, project, f"init_from={project.run()}"))
    assert all(set(row) == {"index", "value"} for row in rows)


def test_outputs_are_written_beside_where_they_are_asked_for(command, project, trained):
    run = predicted(command, project, f"init_from={trained}", "trainer.predict_outputs=[output]")
    for row in lines(run):
        scores = row["outputs"]["output"]
        assert row["label"] == scores.index(max(scores))


def test_an_output_that_the_model_does_not_give_is_told(command, project, trained):
    done = command("task=predict", f"init_from={trained}", "trainer.predict_outputs=[hidden]")
    assert done.code == 1
    assert "the model gives no output 'hidden'" in done.text
    assert "Traceback" not in done.text
    assert info(max(project.runs()))["status"] == "failed"
    assert not list(max(project.runs()).glob("*predictions*"))


def test_several_sets_have_a_file_each_with_the_names_of_their_samples(
    command, project, trained, sets
):
    run = predicted(command, project, f"init_from={trained}", SETS)
    assert sorted(path.name for path in run.glob("predictions*")) == [
        "predictions-dev.jsonl",
        "predictions-held%2Fout.jsonl",
    ]
    found = lines(run, "predictions-dev.jsonl")
    assert [row["id"] for row in found] == [f"ä{index}" for index in range(7)]


@pytest.mark.parametrize("form", ["beside", "several", "dict"])
def test_samples_without_targets_are_predicted(command, project, trained, sets, form):
    run = predicted(command, project, f"init_from={trained}", SETS, f"data.source.form={form}")
    suffixes = ["-a", "-b"] if form == "several" else [""]
    names = [f"predictions{suffix}.jsonl" for suffix in suffixes]
    assert sorted(info(run)["result"]["predictions"]) == names
    for name in names:
        assert [row["index"] for row in lines(run, name)] == list(range(11))


def test_a_source_for_prediction_alone_cannot_be_trained_on(command, project, sets):
    done = command(SMALL, SETS, "data.source.form=dict")
    assert done.code == 1
    assert "there is no training set" in done.text


def test_only_as_many_batches_are_predicted_as_are_asked_for(command, project, trained):
    limits = ("trainer.limit_eval_batches=2", "data.eval_batch_size=3")
    run = predicted(command, project, f"init_from={trained}", *limits)
    assert [row["index"] for row in lines(run)] == list(range(6))


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (("task=predict",), "init_from"),
        (("task=predict", "init_from=RUN", "trainer.n_epochs=3"), "trainer.n_epochs"),
        (("task=predict", "init_from=RUN", "optimizer.lr=1"), "optimizer.lr"),
        (("task=predict", "init_from=RUN", "trainer.predict_outputs=3"), "predict_outputs"),
        (("task=evaluate", "init_from=RUN", "trainer.predict_outputs=[x]"), "predict_outputs"),
        ((SMALL, "trainer.predict_outputs=[x]"), "trainer.predict_outputs"),
    ],
)
def test_options_without_effect_are_refused(command, project, trained, args, key):
    done = command(*(text.replace("RUN", str(trained)) for text in args))
    assert (done.code, done.out) == (2, "")
    assert key in done.err
    assert len(done.err.splitlines()) == 2
    assert project.runs() == [trained]


def test_nothing_to_predict_is_an_error(command, project):
    command(SMALL, "data.source.kind=no_eval", "monitor=null")
    done = command("task=predict", f"init_from={project.run()}")
    assert done.code == 1
    assert "there is nothing to predict" in done.text


def test_a_prediction_that_is_stopped_leaves_no_part_of_a_file(
    command, project, trained, monkeypatch
):
    rows = Predictor.rows

    def stopped(self, name):
        yield next(rows(self, name))
        raise KeyboardInterrupt

    monkeypatch.setattr(Predictor, "rows", stopped)
    done = command("task=predict", f"init_from={trained}")
    assert done.code == 130
    run = max(project.runs())
    assert info(run)["status"] == "interrupted"
    assert not list(run.glob("*predictions*"))


@pytest.mark.slow
def test_a_full_disk_in_a_mount_is_told_and_leaves_no_part_of_a_file(project, trained, sets):
    args = ("task=predict", f"init_from={trained}", SETS, "data.source.form=many")
    done = mounted(project, "size=200k", *args, "hydra.run.dir=small/X")
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "cannot write" in told
    assert "small/X/predictions.jsonl: No space left on device" in told
    assert "Traceback" not in told
    kept = project.path / "kept/X"
    assert not list(kept.glob("*predictions*"))
    assert json.loads((kept / "run.json").read_text())["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "drivers"),
    [("torch", ["torch", "torch_ddp", "torch_fsdp"]), ("paddle", ["paddle", "paddle_fleet"])],
)
def test_two_processes_write_the_file_of_one(command, project, trained, framework, drivers):
    pytest.importorskip(framework)
    written = {}
    for driver in drivers:
        options = (f"driver={driver}", "driver.device=cpu", "data.eval_batch_size=3")
        where = f"hydra.run.dir=outputs/of/{driver}"
        outputs = "trainer.predict_outputs=[output]"
        done = project.process("task=predict", f"init_from={trained}", *options, outputs, where)
        assert done.code == 0, done.text
        assert "predict  10 samples in predictions.jsonl" in done.out
        run = project.path / "outputs/of" / driver
        assert info(run)["world_size"] == (1 if driver == framework else 2)
        assert not [path for path in run.iterdir() if path.name.startswith(".")]
        written[driver] = (run / "predictions.jsonl").read_bytes()
    assert len(set(written.values())) == 1
    rows = [json.loads(line) for line in written[framework].splitlines()]
    assert [row["index"] for row in rows] == list(range(10))
