from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from expkit.testing import RankPool, RanksError

FUNCTIONS = "tests.testing.rank_functions:"


def lives(pid):
    """A zombie counts as dead: only its parent has not noticed yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def all_gone(pids, within_s=5.0):
    deadline = time.monotonic() + within_s
    while any(map(lives, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def shared():
    with RankPool("torch", 3) as pool:
        yield pool


@pytest.fixture
def pool():
    with RankPool("torch", 2) as pool:
        yield pool


def test_results_come_by_rank(shared):
    assert shared.run(FUNCTIONS + "rank") == [0, 1, 2]


def test_the_same_processes_answer_each_time(shared):
    first, second = shared.run(FUNCTIONS + "pids"), shared.run(FUNCTIONS + "pids")
    assert first == second
    assert len({each["pid"] for each in first}) == 3
    assert {each["parent"] for each in first} == {os.getpid()}


def test_each_rank_knows_its_place_in_torchs_words(shared):
    places = shared.run(FUNCTIONS + "place")
    assert [each["RANK"] for each in places] == ["0", "1", "2"]
    assert {(each["WORLD_SIZE"], each["MASTER_ADDR"]) for each in places} == {("3", "127.0.0.1")}
    assert len({each["MASTER_PORT"] for each in places}) == 1
    assert {each["PADDLE_TRAINER_ID"] for each in places} == {None}


def test_each_rank_knows_its_place_in_paddles_words(monkeypatch):
    monkeypatch.setenv("RANK", "7")  # the place of a process that is itself a rank stays behind
    with RankPool("paddle", 2) as pool:
        places = pool.run(FUNCTIONS + "place")
    assert [each["PADDLE_TRAINER_ID"] for each in places] == ["0", "1"]
    assert {each["RANK"] for each in places} == {None}
    (endpoints,) = {each["PADDLE_TRAINER_ENDPOINTS"] for each in places}
    assert len(set(endpoints.split(","))) == 2


def test_arguments_and_results_are_exact(shared):
    array = np.random.default_rng(0).standard_normal((2, 3))
    (result, *_) = shared.run(FUNCTIONS + "echo", a=array, b=[0.1, {"c": array.astype("f4")}])
    np.testing.assert_array_equal(result["a"], array)
    assert result["b"][0] == 0.1
    assert result["b"][1]["c"].dtype == np.float32
    (values, *_) = shared.run(FUNCTIONS + "values")
    assert values["float32"].tobytes() == np.array([0.1, np.nan, -0.0], np.float32).tobytes()
    assert values["shape"].shape == (0, 3)
    assert values["scalar"] == 0.1
    assert values["tuple"] == [1, None, "ü\n"]


def test_what_cannot_travel_is_named(shared):
    with pytest.raises(RanksError, match=r"builtins\.object cannot go between processes"):
        shared.run(FUNCTIONS + "unknown_type")
    with pytest.raises(TypeError, match="has the key 3"):
        shared.run(FUNCTIONS + "echo", a={3: 4})


def test_what_a_function_prints_or_reads_disturbs_nothing(shared):
    assert shared.run(FUNCTIONS + "noisy") == ["", "", ""]
    assert shared.run(FUNCTIONS + "rank") == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.testing.rank_functions", "allowed: module:name"),
        ("tests.testing.nowhere:f", "No module named 'tests.testing.nowhere'"),
        (FUNCTIONS + "absent", "has no attribute 'absent'"),
    ],
)
def test_a_function_that_is_not_there_is_named(shared, name, said):
    with pytest.raises(RanksError, match=said):
        shared.run(name)


def test_an_error_carries_the_traceback_and_the_rank_and_the_other_results(shared):
    with pytest.raises(RanksError) as caught:
        shared.run(FUNCTIONS + "fail_on", failing=[1])
    error = caught.value
    assert error.rank == 1
    assert error.error == "ValueError: bad sample on rank 1"
    assert error.results == {0: "fine", 2: "fine"}
    assert "in fail_on" in str(error)
    assert str(error).count("Traceback") == 1
    assert shared.run(FUNCTIONS + "rank") == [0, 1, 2]


def test_of_several_errors_the_first_in_time_is_told(shared):
    with pytest.raises(RanksError) as caught:
        shared.run(FUNCTIONS + "fail_on", failing=[2, 0])
    assert caught.value.rank == 2
    assert sorted(caught.value.failures) == [0, 2]


def test_an_exit_is_an_error_like_others(shared):
    with pytest.raises(RanksError, match="SystemExit: 3"):
        shared.run(FUNCTIONS + "exit_politely", code=3)
    assert shared.run(FUNCTIONS + "rank") == [0, 1, 2]


def test_ranks_that_wait_for_one_that_failed_are_not_waited_for(pool):
    pool.run(FUNCTIONS + "rank")  # the processes are up
    start = time.monotonic()
    with pytest.raises(RanksError) as caught:
        pool.run(FUNCTIONS + "fail_on", failing=[1], wait_s=60, settle_s=0.2)
    assert time.monotonic() - start < 10
    assert caught.value.rank == 1
    assert caught.value.failures[0] == "did not answer in time"
    with pytest.raises(RanksError, match=r"restart\(\), since rank 0 did not answer in time"):
        pool.run(FUNCTIONS + "rank")


def test_a_late_rank_is_told_with_where_it_was(pool):
    pool.run(FUNCTIONS + "rank")  # the processes are up
    with pytest.raises(RanksError, match="did not answer in time") as caught:
        pool.run(FUNCTIONS + "fail_on", failing=[], wait_s=60, timeout_s=0.5)
    assert caught.value.rank == 0
    assert "in fail_on" in str(caught.value)


def test_a_run_that_was_broken_off_leaves_no_answers_for_the_next(pool, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("expkit.testing.ranks.decode", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.run(FUNCTIONS + "echo", old=True)
    with pytest.raises(RanksError, match="since its last run was broken off"):
        pool.run(FUNCTIONS + "rank")
    pool.restart()
    assert pool.run(FUNCTIONS + "rank") == [0, 1]


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_left_is_told_and_the_pool_starts_anew(pool, code):
    with pytest.raises(RanksError, match=f"rank 1: died, exit code {code}") as caught:
        pool.run(FUNCTIONS + "leave", code=code, leaver=1)
    assert caught.value.results == {0: 0}
    with pytest.raises(RanksError, match="since rank 1 died"):
        pool.run(FUNCTIONS + "rank")
    pool.restart()
    assert pool.run(FUNCTIONS + "rank") == [0, 1]


def test_a_killed_rank_is_the_cause_and_not_the_one_that_missed_it(pool):
    with pytest.raises(RanksError) as caught:
        pool.run(FUNCTIONS + "kill_self", victim=1, number=int(signal.SIGKILL))
    assert caught.value.rank == 1
    assert caught.value.error == "died, killed by SIGKILL"
    assert caught.value.failures[0] == "RuntimeError: the peer is gone"
    assert "last words" in str(caught.value)


def test_a_closed_pool_leaves_nothing_behind():
    with RankPool("torch", 2) as pool:
        pids = [each["pid"] for each in pool.run(FUNCTIONS + "pids")]
        children = [each["child"] for each in pool.run(FUNCTIONS + "start_child")]
        assert all(map(lives, [*pids, *children]))
    assert all_gone([*pids, *children])
    pool.close()
    with pytest.raises(RanksError, match="closed"):
        pool.run(FUNCTIONS + "rank")


def test_ranks_die_with_a_parent_that_is_killed():
    script = (
        "from expkit.testing import RankPool\n"
        "pool = RankPool('torch', 2)\n"
        f"pids = [each['pid'] for each in pool.run('{FUNCTIONS}pids')]\n"
        "print(*pids, flush=True)\n"
        f"pool.run('{FUNCTIONS}fail_on', failing=[], wait_s=60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    assert all_gone(pids)
