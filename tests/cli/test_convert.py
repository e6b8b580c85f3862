"""Taking the weights of a run into another framework."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from safetensors.numpy import load_file

from expkit.checkpoint import CheckpointStore
from expkit.command_line import override
from tests.cli.conftest import SMALL, config, info, tree

MODEL = ("model.hidden=[6,6]", "model.norm=layer")


@pytest.fixture
def run(command, project):
    """A run whose last evaluation is not its best."""
    done = command(
        SMALL, "trainer.n_epochs=6", "optimizer=sgd", "optimizer.lr=3.0", "monitor=-loss"
    )
    assert done.code == 0, done.text
    result = info(project.run())["result"]
    assert result["best_step"] != result["steps"]
    return project.run()


def model(path):
    return load_file(path / "model.safetensors")


def test_the_best_weights_are_written_beside_the_run_transposed(command, run):
    before = tree(run)
    best = info(run)["result"]["best_step"]
    done = command("convert", str(run), "--to", "torch")
    assert (done.code, done.err) == (0, "")
    place = run / f"converted/torch/step-{best:08d}"
    assert f"from     {run} (best, step {best}), numpy\nwrote    {place}, torch\n" in done.out
    assert {name: text for name, text in tree(run).items() if "converted" not in name} == before
    source = model(run / f"checkpoints/step-{best:08d}")
    for path, array in model(place).items():
        transposed = path.endswith("weight")
        np.testing.assert_array_equal(array, source[path].T if transposed else source[path])
    state, about = CheckpointStore(place.parent).load(place)
    assert about.step == best
    assert about.metrics == info(run)["result"]["best_eval"]
    assert state.keys() == {"model", "origin"}
    assert command("verify", str(place)).out.splitlines()[1].split("  ")[-2:] == [
        "whole",
        "last, best",
    ]


def test_the_command_it_prints_runs_wherever_the_weights_lie(command, run, monkeypatch):
    place = "a b,c/ü's=[${x}] \\"
    done = command("convert", str(run), "--to", "torch", "--output", place)
    assert done.code == 0, done.text
    assert f"wrote    {shlex.quote(place)}, torch\n" in done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith("use it   "))
    words = shlex.split(line.removeprefix("use it   "))
    assert words[:3] == ["python", "-m", "expkit"]
    assert words[-1] == "..."
    overrides = [OverridesParser.create().parse_override(text) for text in words[3:-1]]
    assert {each.key_or_group: each.value() for each in overrides} == {
        "driver": "torch",
        "init_from": place,
    }
    assert command("convert", place, "--to", "numpy", "--output", "kept here/ü,").code == 0
    begun = command(SMALL, override("init_from", "kept here/ü,"))
    assert begun.code == 0, begun.text


def test_the_last_or_a_single_checkpoint_can_be_converted(command, run):
    last = max((run / "checkpoints").glob("step-*"))
    assert command("convert", str(run), "--to", "torch", "--which=last").code == 0
    place = run / "converted/torch" / last.name
    assert place.is_dir()
    assert command("convert", str(last), "--to=paddle").code == 0
    assert (run / "converted/paddle" / last.name).is_dir()
    done = command("convert", str(last), "--to=torch", "--which=last", "--output=x")
    assert done.code == 2
    assert "--which chooses one of a run" in done.err
    done = command("convert", str(place), "--to", "numpy")
    assert done.code == 0, done.text
    back = run / "converted/numpy" / last.name
    for path, array in model(last).items():
        np.testing.assert_array_equal(model(back)[path], array)


def test_the_place_can_be_chosen_and_nothing_is_overwritten(command, project, run):
    assert command("convert", str(run), "--to", "torch", "--output", "a/b").code == 0
    assert (project.path / "a/b/model.safetensors").is_file()
    before = tree(project.path)
    again = command("convert", str(run), "--to", "torch", "--output", "a/b")
    assert (again.code, again.out) == (2, "")
    assert "a/b is there" in again.err
    assert command("convert", str(run), "--to", "torch", "--output", "a").code == 2
    failed = command("convert", str(run), "--to", "torch", "--output", "my_data.py/c")
    assert (failed.code, failed.out) == (1, "")
    assert "cannot write my_data.py/c: " in failed.err
    assert tree(project.path) == before


def test_a_checkpoint_that_belongs_to_no_run_is_converted_beside_itself(command, project, run):
    (run / "checkpoints").rename(project.path / "kept")
    (one, *_) = (project.path / "kept").glob("step-*")
    done = command("convert", f"kept/{one.name}", "--to", "torch")
    assert done.code == 0, done.text
    assert f"wrote    kept/converted/torch/{one.name}, torch\n" in done.out
    assert (project.path / f"kept/converted/torch/{one.name}").is_dir()


def test_a_link_in_the_run_does_not_lead_out_of_it(command, project, run):
    (run / "converted").symlink_to(project.path / "conf")
    done = command("convert", str(run), "--to", "torch")
    assert done.code == 1
    assert "leads out of" in done.err
    assert not (project.path / "conf/torch").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "needs a run or a checkpoint, and --to"),
        (("outputs",), "needs a run or a checkpoint, and --to"),
        (("outputs", "--to", "jax"), "invalid choice: 'jax'"),
        (("outputs", "--to", "torch"), "outputs is neither a run directory nor a checkpoint"),
        (("nowhere", "--to", "torch"), "nowhere does not exist"),
        (("RUN", "--to", "numpy"), "is of numpy already"),
        (("RUN", "--to", "torch", "--force"), "--force: no such argument"),
        (("RUN", "--to", "torch", "--output=a/checkpoints/b"), "a run keeps its own"),
        (("RUN", "RUN", "--to", "torch"), "no such argument"),
    ],
)
def test_a_wrong_argument_is_refused(command, run, args, told):
    before = tree(run)
    done = command("convert", *(str(run) if arg == "RUN" else arg for arg in args))
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert tree(run) == before


def test_damage_is_an_error_and_nothing_is_written(command, run):
    for file in run.glob("checkpoints/*/model.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    before = tree(run)
    done = command("convert", str(run), "--to", "torch")
    assert (done.code, done.out) == (1, "")
    assert "every checkpoint is damaged" in done.err
    assert tree(run) == before


def test_neither_framework_nor_hydra_is_imported(imported, run):
    done, modules = imported("convert", str(run), "--to", "torch")
    assert done.code == 0, done.text
    assert not {"torch", "paddle", "hydra", "omegaconf"} & modules


def test_a_run_does_not_go_on_from_converted_weights(command, run):
    command("convert", str(run), "--to", "torch")
    (place,) = run.glob("converted/torch/*")
    done = command(SMALL, f"resume={place}")
    assert done.code == 2
    assert "Traceback" not in done.text


# -- the other framework -------------------------------------------------------------------------


def evaluated(project, *args):
    before = project.runs()
    done = project.process("task=evaluate", *args)
    assert done.code == 0, done.text
    (new,) = set(project.runs()) - set(before)
    return info(new)["result"]["metrics"], done, new


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("torch", "paddle"), ("paddle", "torch")])
def test_the_other_framework_evaluates_to_the_same_metrics(project, command, source, target):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    done = project.process(SMALL, f"driver={source}", *MODEL)
    assert done.code == 0, done.text
    run = project.run()
    best = info(run)["result"]["best_eval"]
    metrics, done, new = evaluated(project, f"init_from={run}", f"driver={target}")
    assert metrics == pytest.approx(best, rel=1e-5)
    assert done.out.count(f", converted from {source}") == 1
    assert config(new)["model"]["_target_"].split(".")[-2] == target
    assert command("convert", str(run), "--to", target).code == 0
    (place,) = run.glob(f"converted/{target}/*")
    converted, done, new = evaluated(project, f"init_from={place}", f"driver={target}")
    assert converted == metrics
    assert "converted from" not in done.out
    assert config(new)["model"]["hidden"] == [6, 6]  # the run's own model is known there too


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["torch_fsdp", "paddle_fleet"])
def test_all_ranks_begin_with_the_converted_weights(project, run, driver):
    pytest.importorskip(driver.split("_")[0])
    ranks = (f"driver={driver}", "driver.num_processes=2")
    still = ("optimizer.lr=1e-30", "trainer.max_steps=1")  # too little to change a weight
    done = project.process(SMALL, f"init_from={run}", *ranks, *still)
    assert done.code == 0, done.text
    assert ", converted from numpy" in done.out
    best = info(run)["result"]["best_eval"]
    (new,) = set(project.runs()) - {run}
    assert info(new)["result"]["metrics"] == pytest.approx(best, rel=1e-5)


def test_old_checkpoints_that_do_not_say_their_layers_are_refused(command, project, run):
    for place in run.glob("checkpoints/step-*"):
        store = CheckpointStore(project.path / "old", keep_last=None, background=False)
        state, about = store.load(place)
        del state["origin"]
        store.save(state, step=about.step, epoch=0, metrics={}, score=about.score)
    done = command("convert", "old", "--to", "torch")
    assert (done.code, done.out) == (2, "")
    assert "does not say its framework" in done.err
