"""However a rank fails: all end soon, the cause is named, and nothing is left."""

from __future__ import annotations

import pytest

SOON_S = 8.0  # far above what it takes on a machine with nothing else to do

DEATHS = {
    "killed": (["die", "SIGKILL"], "killed by SIGKILL", -9),
    "terminated from outside": (["die", "SIGTERM"], "killed by SIGTERM", -15),
    "exits early": (["leave", 0], "exited early (code 0)", 0),
    "exits with a code": (["leave", 3], "exited with code 3", 3),
    "aborts": (["abort"], "killed by SIGABRT", -6),
    "segmentation fault": (["fault"], "killed by SIGSEGV", -11),
}


def test_ranks_that_end_well_give_the_outcome_of_rank_0(launch):
    ended = launch({0: ["end", 0], 1: ["work"]})
    assert ended.exit_code == 0
    assert ended.outcome == {"exit_code": 0}
    assert ended.failures == ()
    assert ended.stopped_by is None
    assert not launch.logs.exists()  # nobody printed anything


def test_the_exit_code_of_the_outcome_is_that_of_the_run(launch):
    ended = launch({0: ["end", 5]})
    assert (ended.exit_code, ended.failures) == (5, ())


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_is_told_with_its_rank_and_traceback(launch, rank):
    ended = launch({rank: ["fail"], 1 - rank: ["beat_on"]})
    [failure] = ended.failures
    assert (failure.rank, failure.what) == (rank, "BadSample: bad sample 7")
    assert 'raise BadSample("bad sample 7' in failure.traceback
    assert not failure.is_shown
    assert ended.exit_code == 7  # the error's own
    assert launch.seconds < SOON_S


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("death", DEATHS)
def test_a_death_is_told_with_its_rank_and_signal(launch, death, rank):
    act, what, code = DEATHS[death]
    ended = launch({rank: act, 1 - rank: ["beat_on"]})
    [failure] = ended.failures
    assert (failure.rank, failure.what, failure.exit_code) == (rank, what, code)
    assert ended.exit_code == max(1, code)
    assert launch.seconds < SOON_S


@pytest.mark.parametrize("rank", [0, 1])
def test_a_crash_comes_with_the_stack_of_python_and_not_on_the_console(launch, rank, capfd):
    [failure] = launch({rank: ["fault"], 1 - rank: ["beat_on"]}).failures
    assert "Segmentation fault" in failure.traceback
    assert "in fault" in failure.traceback
    assert not failure.is_shown
    assert "in fault" not in capfd.readouterr().err
    assert "in fault" in (launch.logs / f"rank{rank}.out").read_text()


def test_an_import_error_before_the_first_sign_of_life_is_told(launch, monkeypatch, capfd):
    monkeypatch.setenv("DUMMY_IMPORT_ERROR", "1")
    [failure] = launch({0: ["beat_on"]}).failures
    assert (failure.rank, failure.what) == (1, "exited with code 1")
    assert "No module named 'a_module_that_is_not_there'" in failure.traceback
    assert failure.is_shown
    assert capfd.readouterr().err.count("No module named") == 1


def test_a_traceback_that_was_not_shown_says_so(launch, monkeypatch, capfd):
    monkeypatch.setenv("DUMMY_IMPORT_ERROR", "1")
    [failure] = launch({0: ["beat_on"]}, worker_output="ignore").failures
    assert "No module named" in failure.traceback
    assert not failure.is_shown
    assert "No module named" not in capfd.readouterr().err


def test_no_rank_prints_a_traceback_that_it_has_reported(launch, capfd):
    launch({1: ["fail"], 0: ["beat_on"]}, worker_output="all")
    out, err = capfd.readouterr()
    assert "bad sample" not in out + err


@pytest.mark.parametrize(
    ("cause", "victim"),
    [
        (["fail", 0.15], ["follow_up"]),  # the victim is heard first
        (["fail"], ["follow_up", 0.1]),
        (["die", "SIGKILL", 0.15], ["follow_up"]),
        (["leave", 0, 0.15], ["follow_up"]),
        (["abort", 0.15], ["follow_up"]),
        (["fail"], ["abort", 0.15]),  # libraries abort when a peer is gone
    ],
    ids=lambda act: "-".join(map(str, act)),
)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_cause_is_blamed_and_not_the_victim(launch, cause, victim, rank):
    failures = launch({rank: cause, 1 - rank: victim}).failures
    assert [failure.rank for failure in failures] == [rank, 1 - rank]


def test_a_cause_that_comes_long_after_its_victim_is_waited_for(launch):
    failures = launch({0: ["follow_up", 0.0, False], 1: ["fail", 0.8]}, grace_s=3.0).failures
    assert failures[0].what == "BadSample: bad sample 7"


def test_whoever_gives_no_answer_is_blamed_where_nobody_tells_a_cause(launch):
    failures = launch({0: ["follow_up"], 1: ["beat_on"]}, grace_s=0.5).failures
    assert [failure.rank for failure in failures] == [1, 0]
    assert failures[0].what == "gave the other ranks no answer"
    assert "in beat_on" in failures[0].traceback
    assert failures[1].what.startswith("RuntimeError: all_reduce failed")


HANGS = {
    "halted": (1, ["die", "SIGSTOP"], "no sign of life for", ""),
    "busy": (1, ["spin"], "no progress for", "in spin"),
    "busy main": (0, ["spin"], "no progress for", "in spin"),
    "holds the lock": (1, ["hold_the_lock"], "no sign of life for", "in hold_the_lock"),
}


@pytest.mark.slow
@pytest.mark.parametrize("hang", HANGS)
def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(launch, hang):
    rank, act, what, frame = HANGS[hang]
    ended = launch({rank: act, 1 - rank: ["wait"]}, timeout_s=2.2, grace_s=0.3)
    failure = ended.failures[0]
    assert failure.rank == rank
    assert failure.what.startswith(what)
    assert frame in failure.traceback
    assert ("halted" in failure.what) == (hang == "halted")
    assert ended.exit_code == 1
    assert launch.seconds < SOON_S


@pytest.mark.slow
def test_a_slow_rank_is_not_killed(launch):
    ended = launch({1: ["one_pause", 1.5]}, timeout_s=2.0)
    assert (ended.exit_code, ended.failures) == (0, ())


@pytest.mark.slow
def test_a_rank_without_a_pulse_has_until_the_others_are_done(launch):
    failures = launch({0: ["end"], 1: ["time_sleep"]}, timeout_s=1.5, grace_s=0.5).failures
    assert failures[0].rank == 1


def test_a_rank_that_ignores_sigterm_is_killed(launch):
    launch({0: ["ignore_sigterm"], 1: ["fail", 0.2]}, grace_s=0.5)
    assert launch.seconds < SOON_S


@pytest.mark.parametrize("act", [["work"], ["fail"], ["die", "SIGKILL"], ["leave", 0]])
def test_processes_that_a_rank_leaves_behind_are_ended(launch, act):
    launch({1: ["with_a_child", *act]})
    assert (launch.directory / "child1").read_text().isdigit()  # the fixture looks for it


def test_ranks_that_are_done_and_do_not_exit_are_ended(launch, monkeypatch):
    monkeypatch.setattr("expkit.launch.supervisor._EXIT_S", 0.5)
    ended = launch({0: ["linger"], 1: ["linger"]}, grace_s=0.3)
    assert (ended.exit_code, ended.failures) == (0, ())


def test_a_crash_after_all_is_done_loses_nothing(launch):
    ended = launch({1: ["done_and_die"]})
    assert (ended.exit_code, ended.failures) == (0, ())


def test_three_ranks_of_which_one_fails_end_together(launch):
    acts = {0: ["beat_on"], 1: ["follow_up"], 2: ["fail", 0.1]}
    failures = launch(acts, num_processes=3).failures
    assert [failure.rank for failure in failures] == [2, 1]


def test_a_command_that_is_not_there_raises_and_leaves_nothing(launch):
    with pytest.raises(FileNotFoundError):
        launch({}, command=["/not/there"])


@pytest.mark.slow
def test_ten_failures_in_a_row_are_all_told_alike(launch):
    for _ in range(10):
        failures = launch({0: ["follow_up", 0.05], 1: ["fail"]}).failures
        assert [failure.rank for failure in failures] == [1, 0]
        assert launch.seconds < SOON_S
    assert launch.leftovers == []
