"""driver.max_restarts: after a failure the ranks are started again, and nothing shows it."""

from __future__ import annotations

import pytest

from tests.dist.project import TWO_TORCH, Project, info, records, seen, together, weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ARGS = [
    *TWO_TORCH,
    "model.dropout=0.2",
    "trainer.n_epochs=3",
    "checkpoint.save_every=5",
    "driver.max_restarts=1",
]
WAYS = {
    "undisturbed": [],
    "killed after a checkpoint": ["callbacks.probe.what=kill_once", "callbacks.probe.step=7"],
    "killed before any": ["callbacks.probe.what=kill_once", "callbacks.probe.step=2"],
    "killed each time": ["callbacks.probe.what=SIGKILL"],
    "begun anew by hand": [
        "driver.max_restarts=0",
        "callbacks.probe.what=kill_once",
        "callbacks.probe.step=2",
    ],
}


def disturb(directory):
    """A run for each way."""

    def run(name):
        project = Project.make(directory / name)
        finished = project.run(*ARGS, *WAYS[name])
        if "by hand" in name:
            assert finished.code == 1
            finished = project.run(f"resume={project.run_directory()}")
        return project, finished

    return together({name: lambda name=name: run(name) for name in WAYS})


@pytest.fixture(scope="module")
def ways(once):
    pytest.importorskip("torch")
    return once(disturb)


def starts(run) -> int:
    return len([line for line in seen(run, 0) if "pid" in line])


@pytest.mark.parametrize(
    "name", ["killed after a checkpoint", "killed before any", "begun anew by hand"]
)
def test_a_killed_rank_costs_nothing_but_time(ways, name):
    (calm, undisturbed), (project, finished) = ways["undisturbed"], ways[name]
    assert (undisturbed.code, finished.code) == (0, 0), finished.text
    run, straight = project.run_directory(), calm.run_directory()
    assert (starts(straight), starts(run)) == (1, 2)
    assert weights(run) == weights(straight)
    for split in ("train", "eval"):
        one, other = records(run, split), records(straight, split)
        assert [(each.step, each.metrics) for each in one] == [
            (each.step, each.metrics) for each in other
        ]
    assert [record.step for record in records(run)] == list(range(1, 19))
    assert info(run)["status"] == "completed"


def test_a_restart_names_its_run_as_it_can_be_typed(ways):
    after = ways["killed after a checkpoint"][1].text
    assert "resumed from outputs/" in after


def test_the_restart_is_told_with_its_cause_and_where_it_begins(ways):
    after = ways["killed after a checkpoint"][1].text
    before = ways["killed before any"][1].text
    cause = "WARNING: rank 1: killed by SIGKILL; start 2 of 2, from "
    assert after.count(cause + "the last checkpoint") == 1
    assert before.count(cause + "the beginning") == 1
    assert ways["begun anew by hand"][1].text.count("the run begins anew in its directory") == 1


def test_a_crash_loop_ends_with_its_cause(ways):
    project, finished = ways["killed each time"]
    run = project.run_directory()
    assert finished.code == 1
    assert starts(run) == 2
    assert "ERROR: rank 1: killed by SIGKILL" in finished.err
    assert info(run)["status"] == "failed"
    assert "killed by SIGKILL" in info(run)["error"]["message"]
    assert project.processes == []
