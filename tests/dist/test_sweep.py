"""Sweeps over distributed jobs, and several runs at once."""

from __future__ import annotations

import json

import pytest

from tests.dist.project import (
    SMALL,
    Project,
    config,
    info,
    losses,
    ranks_seen,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_sweep_gives_each_job_its_values_on_both_ranks(project):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    swept = project.run(
        "-m", SMALL, "driver=torch_ddp,paddle_fleet", "driver.num_processes=2", "seed=0,1"
    )
    assert swept.code == 0, swept.text
    runs = sorted(file.parent for file in project.path.rglob("run.json"))
    assert len(runs) == 4
    classes = {"torch_ddp": "TorchDDPDriver", "paddle_fleet": "PaddleFleetDriver"}
    expected = [(driver, seed) for driver in classes for seed in (0, 1)]
    for run, (driver, seed) in zip(runs, expected, strict=True):
        told = info(run)
        assert (told["status"], told["driver"], told["seed"]) == ("completed", driver, seed)
        assert config(run)["seed"] == seed
        both = ranks_seen(run)
        assert [each["note"] for each in both] == [seed, seed]
        assert [each["driver"] for each in both] == [classes[driver]] * 2
        assert both[0]["pid"] != both[1]["pid"]
    one, other, third, _ = map(losses, runs)
    assert one != other
    assert one == pytest.approx(third, rel=1e-5)  # the driver changes nothing
    assert "4 jobs, 0 not completed" in swept.out
    (sweep,) = project.path.rglob("sweep.jsonl")
    assert [json.loads(line)["status"] for line in sweep.read_text().splitlines()] == [
        "completed"
    ] * 4


def test_a_job_whose_rank_fails_does_not_stop_the_others(project):
    pytest.importorskip("torch")
    args = [SMALL, "driver=torch_ddp", "driver.num_processes=2"]
    swept = project.run("-m", *args, "callbacks.probe.what=raise,none")
    assert swept.code == 1
    runs = sorted(file.parent for file in project.path.rglob("run.json"))
    assert [info(run)["status"] for run in runs] == ["failed", "completed"]
    assert "rank 1: CallbackError" in info(runs[0])["error"]["message"]
    assert "bad sample 7" in (runs[0] / "train.log").read_text()
    assert "2 jobs, 1 not completed" in swept.out
    assert "bad sample 7" in swept.out  # in the table, too


def test_four_runs_started_at_once_do_not_collide(project: Project):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    children = {
        (driver, seed): project.start(
            SMALL, f"driver={driver}", "driver.num_processes=2", f"seed={seed}"
        )
        for driver, seed in [
            ("torch_ddp", 0),
            ("torch_ddp", 1),
            ("paddle_fleet", 0),
            ("paddle_fleet", 2),
        ]
    }
    for child in children.values():
        finished = project.finish(child)
        assert finished.code == 0, finished.text
    runs = project.runs()
    assert len(runs) == 4
    found = {(info(run)["driver"], info(run)["seed"]): run for run in runs}
    assert found.keys() == children.keys()
    for (_, seed), run in found.items():
        assert info(run)["status"] == "completed"
        assert config(run)["seed"] == seed
        assert [each["note"] for each in ranks_seen(run)] == [seed, seed]
        assert list(losses(run)) == list(range(1, 13))
    assert losses(found["torch_ddp", 0]) == pytest.approx(
        losses(found["paddle_fleet", 0]), rel=1e-5
    )
