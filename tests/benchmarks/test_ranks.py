"""The section with several processes: places, answers, equal work."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks import __main__ as command
from benchmarks import commands, pairs
from benchmarks.pairs import WorkError
from benchmarks.ranks import Ranks, merged
from benchmarks.sections import start
from benchmarks.sections.ranks import BASELINES, ROUNDS, TARGETS, WORKS
from benchmarks.sections.training import differences
from benchmarks.work import CLOCK, LENGTH, VOCABULARY, Work, samples
from expkit.launch.environment import find_place

RANK = """
import json, os, sys, time
rank = int(os.environ.get("RANK", os.environ.get("PADDLE_TRAINER_ID")))
print(json.dumps(FIRST), flush=True)
for line in sys.stdin:
    BODY
    times = dict.fromkeys(("step_s", "step_cpu_s", "total_s", "total_cpu_s"), 1.0 + rank)
    print(json.dumps({**times, "forwards": 5, "last_loss": rank, "request": line}), flush=True)
"""


@pytest.fixture
def stand_in(monkeypatch):
    """Have the workers run a script of the test in place of a system."""

    def install(body, first="{'ready': True}"):
        script = RANK.replace("BODY", body).replace("FIRST", first)
        popen = pairs.subprocess.Popen
        started = []

        def start_script(arguments, **options):
            process = popen([arguments[0], "-c", script], **options)
            started.append((process, options["env"]))
            return process

        monkeypatch.setattr(pairs.subprocess, "Popen", start_script)
        return started

    return install


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_each_rank_is_told_its_place(stand_in, framework):
    started = stand_in("pass")
    ranks = Ranks(f"{framework}_ranks_loop", Work(ranks=4))
    ranks.close()
    found = [find_place(environment) for _, environment in started]
    places = sorted(found, key=lambda place: place.rank)
    assert [place.rank for place in places] == [0, 1, 2, 3]
    assert {place.world_size for place in places} == {4}
    assert {(place.address, place.port) for place in places} == {("127.0.0.1", places[0].port)}


def test_the_record_is_the_slowest_ranks_time_and_all_ranks_work(stand_in):
    stand_in("time.sleep(0.1 * (3 - rank))")
    ranks = Ranks("torch_ranks_loop", Work(ranks=4))
    record = ranks.train()
    ranks.close()
    assert (record["step_s"], record["total_s"]) == (4.0, 4.0)
    assert (record["step_cpu_s"], record["total_cpu_s"]) == (10.0, 10.0)
    assert (record["forwards"], record["last_loss"], record["request"]) == (20, 0, "train\n")


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("print(json.dumps({'error': 'ValueError: bad sample'}), flush=True)", "bad sample"),
        ("sys.exit(3)", "the process ended"),
    ],
)
def test_an_error_of_one_rank_ends_the_others_which_wait_for_it(stand_in, ending, message):
    started = stand_in(f"time.sleep(60) if rank != 2 else {ending}")
    ranks = Ranks("torch_ranks_loop", Work(ranks=4))
    began = time.monotonic()
    with pytest.raises(WorkError, match=f"rank 2: .*{message}"):
        ranks.train()
    ranks.close()
    assert time.monotonic() - began < 20
    assert all(process.returncode is not None for process, _ in started)


def test_ranks_that_do_not_answer_are_an_error(stand_in, monkeypatch):
    monkeypatch.setattr("benchmarks.ranks._PATIENCE", 0.2)
    stand_in("time.sleep(60)")
    ranks = Ranks("paddle_ranks_loop", Work(ranks=2))
    with pytest.raises(WorkError, match=r"no answer within 0\.2 s"):
        ranks.train()
    ranks.close()


def test_records_of_ranks_that_did_not_do_the_same_are_a_problem():
    work = Work(ranks=2)
    times = dict.fromkeys(("step_s", "step_cpu_s", "total_s", "total_cpu_s"), 1.0)
    right = {**times, "forwards": 840, "loss_reads": 84, "last_loss": 0.05, "final_loss": 0.04}
    whole = merged([right, right])
    assert differences("x", [(whole, whole)], work) == []
    (problem,) = differences("x", [(merged([right, {**right, "forwards": 839}]), whole)], work)
    assert problem == "x: 1679 forwards in place of 1680"


@pytest.mark.parametrize(("final", "is_equal"), [(0.08, True), (0.1, False)])
def test_ranks_are_compared_by_the_network_that_they_have_trained(final, is_equal):
    work = Work(ranks=2)
    counted = {"forwards": 1680, "loss_reads": 84}
    own = {**counted, "last_loss": 0.3, "final_loss": final}
    problems = differences("x", [(own, {**counted, "last_loss": 0.1, "final_loss": 0.04})], work)
    assert problems == ([] if is_equal else [f"x: final_loss {final}, its baseline 0.04"])


def test_a_system_that_cannot_be_imported_is_an_error_and_nothing_is_left(stand_in):
    started = stand_in("pass", first="{'error': 'ImportError: no'} if rank else {'ready': True}")
    with pytest.raises(WorkError, match="ImportError: no"):
        Ranks("torch_ranks_loop", Work(ranks=2))
    assert [process.returncode for process, _ in started] == [0, 0]


def test_all_ranks_have_equal_shares_of_whole_steps():
    for work in WORKS.values():
        assert len(samples(work).x_train) % work.samples_per_step == 0
        assert work.forwards == work.steps * work.accumulate
    assert [work.steps for work in WORKS.values()] == [30 * 28, 30 * 7, 6]
    assert [work.steps // work.log_every for work in WORKS.values()] == [84, 21, 6]


def test_a_language_model_foretells_the_next_token():
    x, y, x_eval, _ = samples(WORKS["transformer, accumulate 4"])
    assert x.shape == y.shape == (128, LENGTH)
    assert (x[:, 1:] == y[:, :-1]).all()
    assert 0 <= x.min() <= x.max() < VOCABULARY
    assert len(x_eval) == 0


def test_the_time_of_a_step_is_that_of_its_micro_batches(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("benchmarks.work.time.perf_counter", lambda: 2.0 * next(ticks))
    monkeypatch.setattr("benchmarks.work.time.process_time", lambda: 0.0)
    CLOCK.set(4, 8)
    for _ in range(12):
        CLOCK.tick()
    assert CLOCK.seconds_per_forward() == (2.0 / 4, 0.0)


def test_each_system_has_a_module_each_target_a_work():
    for system, baseline in BASELINES.items():
        assert (command.RESULTS.parent / "systems" / f"{system}.py").is_file()
        assert BASELINES[baseline] == baseline
    assert TARGETS.keys() <= BASELINES.keys()
    assert all(targets.keys() == WORKS.keys() for targets in TARGETS.values())
    assert ROUNDS.keys() == WORKS.keys()


def test_the_last_process_to_make_its_step_counts(tmp_path):
    both = "import time; from benchmarks.scripts.mark import mark; mark(); mark()"
    later = f"import subprocess, sys, time; {both}; time.sleep(0.3)"
    code = f"{later}; subprocess.run([sys.executable, '-c', {both!r}], check=True)"
    record = commands.timed(["-c", code])
    assert record["marks"] == 2
    assert 0.3 < record["first_step_s"] < record["wall_s"]


def test_a_rank_that_makes_no_step_is_told(monkeypatch):
    one = {"wall_s": 1.0, "cpu_s": 1.0, "first_step_s": 0.5, "marks": 1}
    monkeypatch.setattr(start, "timed", lambda *_: one)
    with pytest.raises(commands.CommandError, match="1 processes made a step in place of 2"):
        start._time(start.COMMANDS["torch_ranks_script"])


def test_a_command_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(commands, "_PATIENCE", 0.3)
    with pytest.raises(commands.CommandError, match="exit code -15"):
        commands.timed(["-c", "import time; time.sleep(60)"])


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_one_tiny_round_of_ranks_runs(tmp_path, monkeypatch, capsys, framework):
    monkeypatch.setattr("benchmarks.sections.ranks.WORKS", {"mlp": WORKS["mlp"]})
    only = f"{framework}_ranks_expkit"
    code = command.main(["run", "ranks", "--quick", "--only", only, "--results", str(tmp_path)])
    saved = json.loads((tmp_path / "ranks.json").read_text())
    assert (code, saved["problems"]) == (0, [])
    for ((own, baseline),) in saved["records"]["mlp"]["pairs"].values():
        assert own["forwards"] == baseline["forwards"] == 2 * 4 * 28
        assert own["step_s"] > 0
    assert f"| mlp | {framework}_ranks_expkit | 1 |" in capsys.readouterr().out
