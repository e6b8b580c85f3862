"""Stop signals: the step ends, the state is saved, the exit code tells the signal."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.cli.conftest import SMALL, info, records, weights

PROBE = ("callbacks=[probe]", "callbacks.probe.step=4")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(command, project, name, code):
    done = command(SMALL, *PROBE, f"callbacks.probe.what={name}")
    assert done.code == code
    run = project.run()
    told = info(run)
    assert (told["status"], told["reason"], told["error"]) == ("interrupted", name, None)
    assert told["result"]["steps"] == 4
    assert [path.name for path in run.glob("checkpoints/step-*")] == ["step-00000004"]
    assert [record.step for record in records(run)] == [1, 2, 3, 4]
    assert f"interrupted by {name} after step 4\n" in done.text
    assert "Traceback" not in done.text


def test_no_step_is_lost_by_a_signal(command, project):
    command(SMALL, *PROBE, "callbacks.probe.what=SIGTERM")
    command("resume=latest")
    resumed = project.run()
    command(SMALL, "trainer.n_epochs=2")
    assert weights(max(project.runs())) == weights(resumed)


def test_a_second_signal_ends_at_once_and_saves_nothing_more(command, project):
    done = command(SMALL, *PROBE, "callbacks.probe.what=SIGINT+SIGINT")
    assert done.code == 130
    run = project.run()
    assert info(run)["status"] == "interrupted"
    assert list(run.glob("checkpoints/step-*")) == []
    assert "interrupted by SIGINT after step 4, nothing is saved" in done.text
    assert "go on" not in done.out  # there is nothing to go on from
    assert "Traceback" not in done.text


def test_a_second_signal_tells_from_where_the_run_will_go_on(command, project):
    done = command(SMALL, *PROBE, "callbacks.probe.what=SIGINT+SIGINT", "checkpoint.save_every=3")
    assert done.code == 130
    assert "interrupted by SIGINT after step 4, saved after step 3\n" in done.text
    done = command("resume=latest", "callbacks.probe.what=none")
    assert "(last, step 3), epoch 1 at 3 of 5 steps" in done.out


def test_the_exit_code_is_that_of_the_first_signal(command):
    done = command(SMALL, *PROBE, "callbacks.probe.what=SIGTERM+SIGINT")
    assert done.code == 143


def test_a_signal_while_the_run_is_built_ends_it(command, project):
    done = command(SMALL, "data.source.kind=sigterm")
    assert done.code == 143
    told = info(project.run())
    assert (told["status"], told["reason"], told["result"]) == ("interrupted", "SIGTERM", None)
    assert "Traceback" not in done.text


def test_a_signal_is_raised_where_the_user_asks_for_that(command, project):
    done = command(SMALL, *PROBE, "callbacks.probe.what=SIGTERM", "trainer.on_exception=raise")
    assert done.code == 143
    assert info(project.run())["status"] == "interrupted"


def test_signals_mean_again_what_they_meant_before(command):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    command(SMALL)
    command(SMALL, *PROBE, "callbacks.probe.what=SIGTERM")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def started(project, *args: str) -> subprocess.Popen[str]:
    """A real run that has made its first step."""
    child = project.process(SMALL, "trainer.n_epochs=1000", *args, wait=False)
    deadline = time.monotonic() + 30
    while not any(run.joinpath("metrics.jsonl").exists() for run in project.runs()):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return child


def test_a_real_process_ends_within_seconds_of_sigterm(project):
    child = started(project, "data.source.delay=0.02")
    child.send_signal(signal.SIGTERM)
    began = time.monotonic()
    out, err = child.communicate(timeout=20)
    assert child.returncode == 143
    assert time.monotonic() - began < 10
    told = info(project.run())
    assert told["status"] == "interrupted"
    (newest,) = {path.name for path in project.run().glob("checkpoints/step-*")} & {
        f"step-{told['result']['steps']:08d}"
    }
    assert newest
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_a_second_sigint_ends_a_real_process_in_the_middle_of_a_step(project):
    child = started(project, "data.source.delay=2.0")
    time.sleep(0.2)  # it is in the middle of reading the second batch
    child.send_signal(signal.SIGINT)
    time.sleep(0.2)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert time.monotonic() - began < 1.5
    assert info(project.run())["status"] == "interrupted"
    assert list(project.run().glob("checkpoints/step-*")) == []
    assert "Traceback" not in out + err
