"""However a rank fails: all end in time, the cause is named once, and nothing is left."""

from __future__ import annotations

import signal
import time

import pytest

from tests.dist.failures import ROWS, attempt
from tests.dist.project import TWO_PADDLE, TWO_TORCH, checkpoints, info, together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def fail_in_every_way(directory):
    """A report for each row."""
    return together(
        {
            name: lambda name=name, row=row: attempt(row, directory / name)
            for name, row in ROWS.items()
        }
    )


@pytest.fixture(scope="module")
def reports(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(fail_in_every_way)


@pytest.mark.parametrize("name", ROWS)
def test_a_failing_rank_ends_the_run_in_time_and_is_named(reports, name):
    report = reports[name]
    assert report.complaints == [], report.finished.text


def test_a_failure_is_told_in_few_lines(reports):
    for name, report in reports.items():
        assert len(report.finished.text.splitlines()) <= 60, name


@pytest.mark.parametrize("base", [TWO_TORCH, TWO_PADDLE], ids=["torch", "paddle"])
def test_ranks_do_not_survive_the_command(project, base):
    pytest.importorskip("torch" if base is TWO_TORCH else "paddle")
    child = project.start(
        *base,
        "trainer.n_epochs=1000",
        "callbacks.probe.delay=0.02",
        "checkpoint.save_every=5",
        "checkpoint.keep_last=null",
    )
    run = project.wait_for_step(7, child)
    child.send_signal(signal.SIGKILL)
    began = time.monotonic()
    assert project.gone_after(5.0)
    assert time.monotonic() - began <= 5.0
    project.finish(child)
    assert info(run)["status"] == "running"  # nobody was left to say otherwise
    assert "step-00000005" in checkpoints(run)
    if base is TWO_TORCH:
        resumed = project.run("resume=latest", "trainer.n_epochs=null", "trainer.max_steps=40")
        assert resumed.code == 0, resumed.text
        assert info(run)["result"]["steps"] == 40
