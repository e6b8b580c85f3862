"""The real command on the real frameworks."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cli.conftest import SMALL, info, records, weights

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("driver", ["torch", "paddle"])
def test_a_stopped_run_goes_on_and_can_be_evaluated(project, driver):
    pytest.importorskip(driver)
    args = (SMALL, f"driver={driver}", "callbacks=[probe]", "model.dropout=0.2")
    stopped = project.process(*args, "callbacks.probe.what=SIGTERM")
    assert stopped.code == 143, stopped.text
    (run,) = project.runs()
    resumed = project.process("resume=latest")
    assert resumed.code == 0, resumed.text
    assert [record.step for record in records(run)] == list(range(1, 11))
    straight = project.process(*args)
    assert straight.code == 0
    assert weights(max(project.runs())) == weights(run)
    evaluated = project.process("task=evaluate", f"init_from={run}")
    assert evaluated.code == 0, evaluated.text
    assert info(max(project.runs()))["result"]["metrics"] == info(run)["result"]["best_eval"]


def test_a_signal_while_the_framework_is_imported_ends_the_command(project):
    pytest.importorskip("torch")
    child = project.process(SMALL, "driver=torch", wait=False)
    while not project.runs():
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=30)
    assert child.returncode in (143, -signal.SIGTERM)
    assert "Traceback" not in out + err
    assert info(project.run())["status"] == "interrupted"
