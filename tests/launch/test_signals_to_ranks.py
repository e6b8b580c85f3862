"""Signals to the supervisor, and its death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from expkit.launch.forwarding import FORWARDED
from tests.launch.conftest import DUMMY, ROOT

SOON_S = 8.0

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 143}

PARENT = """
import json, sys
from pathlib import Path
from expkit.launch.supervisor import Supervisor
options = json.loads(sys.stdin.read())
ended = Supervisor(**{**options, "logs": Path(options["logs"])}).run()
print(ended.exit_code)
"""


@pytest.fixture
def interrupt(launch):
    """Send signals to this process, the first one once all ranks are ready."""

    def send(*numbers, pause=0.2, ranks=2):
        def wait_and_send():
            until = time.monotonic() + 10
            while time.monotonic() < until and not all(
                (launch.logs / f"rank{rank}.out").exists() for rank in range(ranks)
            ):
                time.sleep(0.02)
            for number in numbers:
                os.kill(os.getpid(), number)
                time.sleep(pause)

        thread = threading.Thread(target=wait_and_send)
        thread.start()
        threads.append(thread)

    threads: list[threading.Thread] = []
    yield send
    for thread in threads:
        thread.join()


def test_ranks_stop_in_order_at_a_signal(launch, interrupt):
    for number in FORWARDED:
        before = signal.getsignal(number)
        interrupt(number)
        ended = launch({0: ["stop_in_order"], 1: ["stop_in_order"]}, worker_output=str(launch.logs))
        assert ended.outcome == {"exit_code": CODES[number], "seen": [number.name]}
        assert (ended.exit_code, ended.failures) == (CODES[number], ())
        assert ended.stopped_by is number
        assert signal.getsignal(number) is before
        for rank in range(2):
            (launch.logs / f"rank{rank}.out").unlink()


def test_ranks_that_do_not_listen_are_stopped_by_the_signal_all_the_same(launch, interrupt):
    for number in (signal.SIGTERM, signal.SIGUSR1):
        interrupt(number)
        say = ["say_and_beat_on"]
        ended = launch({0: say, 1: say}, worker_output=str(launch.logs))
        assert (ended.exit_code, ended.outcome, ended.failures) == (CODES[number], None, ())
        for rank in range(2):
            (launch.logs / f"rank{rank}.out").unlink()


def test_a_second_signal_ends_ranks_that_do_not_stop(launch, interrupt):
    interrupt(signal.SIGTERM, signal.SIGTERM)
    acts = {0: ["never_stop"], 1: ["never_stop"]}
    ended = launch(acts, worker_output=str(launch.logs), grace_s=0.3)
    assert (ended.exit_code, ended.failures) == (143, ())
    assert ended.stopped_by is signal.SIGTERM
    assert launch.seconds < SOON_S


def test_a_third_signal_ends_them_at_once(launch, interrupt):
    interrupt(signal.SIGINT, signal.SIGINT, signal.SIGINT)
    acts = {0: ["never_stop"], 1: ["never_stop"]}
    ended = launch(acts, worker_output=str(launch.logs), grace_s=30.0)
    assert ended.exit_code == 130
    assert launch.seconds < SOON_S


def test_a_signal_before_the_ranks_have_taken_up_their_work_ends_them(launch):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    ended = launch({}, command=["sleep", "60"])
    assert (ended.exit_code, ended.failures) == (143, ())
    assert launch.seconds < SOON_S


def test_an_error_while_stopping_is_a_failure(launch, interrupt):
    interrupt(signal.SIGTERM)
    acts = {0: ["stop_in_order", 0.5], 1: ["fail_at_a_stop"]}
    ended = launch(acts, worker_output=str(launch.logs))
    assert [failure.what for failure in ended.failures] == ["BadSample: bad sample 7"]
    assert (ended.exit_code, ended.stopped_by) == (7, signal.SIGTERM)


def test_a_signal_to_one_rank_is_its_own_affair(launch):
    acts = {0: ["stop_in_order"], 1: ["stop_in_order"]}

    def stop_each():
        until = time.monotonic() + 10
        files = [launch.logs / f"rank{rank}.out" for rank in range(2)]
        while time.monotonic() < until and not all(file.exists() for file in files):
            time.sleep(0.02)
        for pid in launch.leftovers:
            os.kill(pid, signal.SIGTERM)

    thread = threading.Thread(target=stop_each)
    thread.start()
    ended = launch(acts, worker_output=str(launch.logs))
    thread.join()
    assert (ended.exit_code, ended.failures, ended.stopped_by) == (143, (), None)


def test_a_signal_that_is_ignored_stays_ignored(launch, interrupt):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupt(signal.SIGHUP, signal.SIGTERM)
        acts = {0: ["stop_in_order"], 1: ["stop_in_order"]}
        ended = launch(acts, worker_output=str(launch.logs))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ended.stopped_by is signal.SIGTERM


def test_it_runs_in_a_thread_that_gets_no_signals(launch):
    ended = []
    thread = threading.Thread(target=lambda: ended.append(launch({})))
    thread.start()
    thread.join()
    assert ended[0].exit_code == 0


@pytest.mark.parametrize("act", [["beat_on"], ["hold_the_lock"], ["never_stop"]])
def test_no_rank_outlives_a_supervisor_that_is_killed(launch, act):
    options = {
        "command": DUMMY,
        "job": launch.job({0: act, 1: act}),
        "framework": "torch",
        "num_processes": 2,
        "logs": str(launch.logs),
        "worker_output": "ignore",
        "timeout_s": 60.0,
    }
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    parent.stdin.write(json.dumps(options))
    parent.stdin.close()
    until = time.monotonic() + 10
    while time.monotonic() < until and len(launch.leftovers) < 3:
        time.sleep(0.05)
    assert len(launch.leftovers) == 3
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 5
    while time.monotonic() < until and launch.leftovers:
        time.sleep(0.05)
    assert launch.leftovers == []


def test_a_rank_whose_supervisor_is_gone_before_it_starts_ends(launch):
    read, write = os.pipe()
    os.close(read)
    rank = subprocess.Popen(
        DUMMY,
        stdin=subprocess.DEVNULL,
        pass_fds=(write,),
        env={**os.environ, "EXPKIT_CONTROL_FD": str(write), "RANK": "0"},
        start_new_session=True,
    )
    os.close(write)
    assert rank.wait(timeout=10) == -signal.SIGKILL
