"""What a run leaves behind, and where."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from expkit.builder import Builder
from expkit.run.directory import RunDirectory
from tests.cli.conftest import SMALL, config, info, overrides, records, tree, weights


def test_run_json_tells_the_truth_about_the_command(command, project):
    command(SMALL, "seed=3", "tags=[a]", "name=mine")
    told = info(project.run())
    assert told["argv"] == ["expkit", SMALL, "seed=3", "tags=[a]", "name=mine"]
    assert told["driver"] == "numpy"
    assert (told["task"], told["seed"], told["tags"], told["name"]) == ("train", 3, ["a"], "mine")
    assert (told["status"], told["error"], told["world_size"]) == ("completed", None, 1)
    assert told["pid"] == os.getpid()
    assert project.run().name.endswith("-mine")


def test_the_result_in_run_json_is_that_of_the_records(command, project):
    command(SMALL, "trainer.n_epochs=4")
    result = info(project.run())["result"]
    evaluations = records(project.run(), "eval")
    best = max(evaluations, key=lambda record: record.metrics["accuracy"])
    assert result["best_eval"] == best.metrics
    assert (result["best_step"], result["best_epoch"]) == (best.step, best.epoch)
    assert result["metrics"] == evaluations[-1].metrics
    assert (result["steps"], result["epochs"]) == (20, 4)
    assert result["monitor"] == "accuracy"


def test_a_run_repeats_from_its_overrides_alone(command, project):
    command(SMALL, "optimizer=sgd", "model.hidden=[7]", "seed=5")
    first = project.run()
    assert overrides(first) == [SMALL, "optimizer=sgd", "model.hidden=[7]", "seed=5"]
    command(*overrides(first))
    _, second = project.runs()
    assert weights(second) == weights(first)
    assert config(second) == config(first)
    assert [r.metrics for r in records(second)] == [r.metrics for r in records(first)]


def test_a_run_repeats_from_its_config_alone(command, project):
    command(SMALL, "optimizer=sgd", "model.hidden=[7]", "seed=5")
    builder = Builder(config(project.run()), RunDirectory.at(project.path / "again"))
    result = builder.trainer().fit()
    builder.close()
    assert result.best_eval == info(project.run())["result"]["best_eval"]
    assert weights(project.path / "again") == weights(project.run())


def test_a_value_that_changes_at_every_look_is_looked_at_once(command, project):
    # oc.env stands for any resolver: the saved config has values, and no interpolation
    (project.path / "conf/local").mkdir()
    (project.path / "conf/local/default.yaml").write_text(
        "# @package _global_\ntags: ['${name}', '${oc.env:PWD}']\nname: once\n"
    )
    command(SMALL)
    written = config(project.run())
    assert written["tags"] == ["once", os.environ["PWD"]]
    assert "${" not in (project.run() / "config.yaml").read_text()
    assert info(project.run())["tags"] == written["tags"]


def test_relative_paths_are_relative_to_where_the_command_is_given(command, project):
    table = np.column_stack([np.random.default_rng(0).normal(size=(8, 4)), np.arange(8) % 2])
    np.savetxt(project.path / "d.csv", table, delimiter=",")
    before = {path.name for path in project.path.iterdir()}
    done = command(SMALL, "data=table", "data.source.path=./d.csv")
    assert done.code == 0, done.text
    after = {path.name for path in project.path.iterdir()} - {"__pycache__"}
    assert after - before == {"outputs"}  # nothing else is left where the command was given
    assert Path.cwd() == project.path


@pytest.mark.slow
def test_runs_that_start_at_the_same_moment_have_directories_of_their_own(command, project):
    script = (
        "import sys, datetime, threading\n"
        "import expkit.run.directory as directory\n"
        "class Still(datetime.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None): return cls(2026, 11, 30, 7, 12, 3)\n"
        "directory.datetime = Still\n"
        "from expkit.app import run_command\n"
        "sys.exit(run_command(sys.argv[1:]))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, SMALL, f"seed={seed}", "logger=none"],
            cwd=project.path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        for seed in range(4)
    ]
    assert [child.wait(60) for child in children] == [0] * 4
    runs = project.runs()
    assert len(runs) == 4
    assert {run.parent.name for run in runs} == {"2026-11-30"}
    assert {config(run)["seed"] for run in runs} == {0, 1, 2, 3}
    for run in runs:
        assert info(run)["status"] == "completed"
        assert (run / "train.log").read_text().count(" step - expkit.execution: run ") == 1
        assert len(records(run)) == 10
        assert any((run / "checkpoints").glob("step-*"))


def test_a_named_directory_is_used_when_it_is_absent_or_empty(command, project):
    assert command(SMALL, "hydra.run.dir=here/X").code == 0
    assert info(project.path / "here/X")["status"] == "completed"
    (project.path / "empty").mkdir()
    assert command(SMALL, "hydra.run.dir=empty").code == 0
    assert project.runs() == []


def test_a_named_directory_that_is_not_empty_is_refused_and_left_alone(command, project):
    command(SMALL, "hydra.run.dir=X")
    before = tree(project.path / "X")
    done = command(SMALL, "hydra.run.dir=X")
    assert done.code == 2
    assert done.out == ""
    assert "is not empty" in done.err
    assert "resume=" in done.err
    assert tree(project.path / "X") == before


def test_output_to_a_file_is_short_and_has_no_carriage_returns(project):
    done = project.process(SMALL, "data.source.n=200", "data.batch_size=2")
    assert done.code == 0
    assert info(project.run())["result"]["steps"] == 200
    assert "\r" not in done.text
    assert "\x1b" not in done.text
    assert len(done.text.splitlines()) <= 12


def test_the_log_file_has_what_the_console_has(command, project):
    done = command(SMALL)
    log = (project.run() / "train.log").read_text()
    for line in done.out.splitlines():
        assert line in log


def test_a_clock_that_steps_back_makes_no_negative_time(command, project, monkeypatch):
    real, calls = time.time, iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: real() - 3600 * next(calls))
    done = command(SMALL)
    assert done.code == 0
    assert "-" not in done.out.partition("elapsed")[0].rpartition("|")[2]
    told = info(project.run())
    assert 0 <= told["result"]["seconds"] <= told["seconds"] < 60
    times = [record.time for record in records(project.run())]
    assert times == sorted(times)
    assert told["started"].endswith("+00:00")
    assert told["started"] <= told["ended"]


def test_no_epochs_is_a_run_that_evaluates_once_and_changes_nothing(command, project):
    done = command(SMALL, "trainer.n_epochs=0")
    assert done.code == 0
    result = info(project.run())["result"]
    assert (result["steps"], result["best_eval"]) == (0, {})
    assert len(records(project.run(), "eval")) == 1
    assert records(project.run()) == []


def test_a_run_that_never_evaluates_completes_without_a_best(command, project):
    done = command(SMALL, "trainer.eval_every=null")
    assert done.code == 0, done.text
    assert info(project.run())["result"]["best_eval"] == {}
    assert "best " not in done.out


def test_an_early_stop_is_a_success(command, project):
    done = command(SMALL, "callbacks=[probe]", "callbacks.probe.what=stop")
    assert done.code == 0
    told = info(project.run())
    assert told["status"] == "completed"
    assert told["result"]["steps"] == 3
    assert "stopped  the probe has seen enough" in done.out


@pytest.mark.parametrize("policy", ["auto", "raise"])
def test_an_error_ends_the_run_and_says_where(command, project, policy):
    done = command(
        SMALL, "callbacks=[probe]", "callbacks.probe.what=raise", f"trainer.on_exception={policy}"
    )
    assert done.code == 1
    told = info(project.run())
    assert (told["status"], told["error"]["type"]) == ("failed", "CallbackError")
    assert "callback probe raised in step_end: RuntimeError: the probe raised" in done.text
    assert done.text.count("Traceback") == 1
    assert "my_callbacks.py" in done.text
    assert "my_callbacks.py" in told["error"]["traceback"]


def test_an_ignored_error_ends_the_run_quietly_but_is_kept(command, project):
    done = command(
        SMALL, "callbacks=[probe]", "callbacks.probe.what=raise", "trainer.on_exception=ignore"
    )
    assert done.code == 0
    told = info(project.run())
    assert told["status"] == "failed"
    assert "the probe raised" in told["error"]["message"]
    assert done.text.count("training ended early") == 1
