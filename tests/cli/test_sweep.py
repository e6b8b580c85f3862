"""Sweeps: a run of its own for each job, and a table at the end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, config, info, overrides, weights


def sweep_of(project) -> Path:
    (path,) = project.path.glob("outputs/*/*-sweep-*")
    return path


def jobs_of(project) -> list[dict]:
    return [
        json.loads(line)
        for line in (sweep_of(project) / "sweep.jsonl").read_text().split("\n")
        if line
    ]


@pytest.mark.slow
def test_a_grid_makes_a_directory_a_line_and_a_row_for_each_job(command, project):
    done = command("-m", SMALL, "optimizer=sgd,adam", "seed=0,1", "optimizer.lr=0.01")
    assert done.code == 0, done.text
    jobs = jobs_of(project)
    assert [job["overrides"] for job in jobs] == [
        [f"optimizer={name}", f"seed={seed}"] for name in ("sgd", "adam") for seed in (0, 1)
    ]
    assert sorted(path.parent.name for path in sweep_of(project).glob("*/run.json")) == [
        f"{number:03d}-optimizer-{name}-seed-{seed}"
        for number, (name, seed) in enumerate((n, s) for n in ("sgd", "adam") for s in (0, 1))
    ]
    for job in jobs:
        run = sweep_of(project) / job["directory"]
        told = info(run)
        assert told["status"] == job["status"] == "completed"
        assert told["result"]["best_eval"]["accuracy"] == job["objective"]
        assert job["overrides"][0].removeprefix("optimizer=") in str(
            config(run)["optimizer"]["_target_"].lower()
        )
        assert (run / "train.log").read_text().count("saved ") == 1
        assert overrides(run)[0] == SMALL
    table = done.out.splitlines()[-6:]
    assert table[0].split()[:3] == ["job", "status", "objective"]
    assert table[1].startswith("*")
    assert "4 jobs, 0 not completed" in table[-1]


@pytest.mark.slow
def test_a_failing_job_does_not_stop_the_others(command, project):
    done = command("-m", SMALL, "data.source.kind=raises,good,bad_item")
    assert done.code == 1
    assert [job["status"] for job in jobs_of(project)] == ["failed", "completed", "failed"]
    logs = [(sweep_of(project) / job["directory"] / "train.log") for job in jobs_of(project)]
    first, second, third = (log.read_text() for log in logs)
    assert "no such file: /data/rows.csv" in first
    assert "my_data.py" in first
    assert "Traceback" not in second
    assert "bad sample 7" in third
    assert "no such file" not in second + third
    assert "3 jobs, 2 not completed" in done.out
    for log in (logs[0], logs[2]):
        assert f"failed: see {log.relative_to(project.path)}" in done.out
    assert "HYDRA_FULL_ERROR" not in done.text


def test_a_stop_signal_ends_the_job_and_the_sweep(command, project):
    done = command(
        "-m", SMALL, "callbacks=[probe]", "callbacks.probe.what=none,SIGINT,none", "seed=0"
    )
    assert done.code == 130
    assert [job["status"] for job in jobs_of(project)] == ["completed", "interrupted"]
    assert "2 jobs, 1 not completed" in done.out
    assert "Traceback" not in done.text


@pytest.mark.slow
def test_a_real_sweep_ends_at_sigterm_with_its_table(project):
    child = project.process("-m", SMALL, "seed=0,1", "data.source.delay=0.3", wait=False)
    deadline = time.monotonic() + 30
    while not list(project.path.glob("outputs/*/*/*/metrics.jsonl")):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 143
    assert [job["status"] for job in jobs_of(project)] == ["interrupted"]
    assert "1 job, 1 not completed" in out
    assert "Traceback" not in out + err


def test_the_table_tells_an_error_of_a_job_to_its_end(command, project):
    done = command("-m", SMALL, "data.source.kind=raises,out_of_range", "logger=none")
    assert done.code == 1
    for job in jobs_of(project):
        (row,) = [text for text in done.out.splitlines() if f" {job['overrides'][0]} " in text]
        assert row.endswith(job["error"]) or row.endswith("...")
        assert len(row) > 150 or row.endswith(job["error"])


def test_lists_are_swept_as_lists(command, project):
    done = command("-m", SMALL, "model.hidden=[4],[4,3]", "logger=none")
    assert done.code == 0
    assert [job["overrides"] for job in jobs_of(project)] == [
        ["model.hidden=[4]"],
        ["model.hidden=[4,3]"],
    ]
    runs = [sweep_of(project) / job["directory"] for job in jobs_of(project)]
    assert [config(run)["model"]["hidden"] for run in runs] == [[4], [4, 3]]
    command(SMALL, "model.hidden=[4,3]")  # a job is what the same run alone is
    assert weights(runs[1]) == weights(project.run())


def test_a_bad_value_of_any_job_is_refused_before_the_first(command, project):
    done = command("-m", SMALL, "optimizer.lr=0.1,-1", "seed=0,x")
    assert done.code == 2
    assert "2 problems" in done.err
    assert not (project.path / "outputs").exists()


@pytest.mark.slow
def test_the_directory_of_a_sweep_can_be_named(command, project):
    assert command("-m", SMALL, "seed=0,1", "hydra.sweep.dir=S", "+experiment=small").code == 0
    assert len(list((project.path / "S").glob("*/run.json"))) == 2
    done = command("-m", SMALL, "seed=0,1", "hydra.sweep.dir=S")
    assert done.code == 2
    assert "is not empty" in done.err


@pytest.mark.slow
def test_evaluations_can_be_swept(command, project):
    command(SMALL, "seed=1", "model.hidden=[3]")
    command(SMALL, "seed=2", "model.hidden=[5]")
    first, second = project.runs()
    done = command("-m", "task=evaluate", f"init_from={first},{second}")
    assert done.code == 0, done.text
    assert [job["objective"] for job in jobs_of(project)] == [
        info(run)["result"]["best_eval"]["accuracy"] for run in (first, second)
    ]


def test_jobs_cannot_go_on_in_one_directory(command, project):
    command(SMALL)
    done = command("-m", f"resume={project.run()}", "trainer.n_epochs=3,4")
    assert done.code == 2
    assert "resume" in done.err
