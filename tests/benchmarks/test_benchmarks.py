"""The benchmarks: pairs, equal work, tables."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command
from benchmarks.report import Options, Report, median_of
from benchmarks.sections.start import COMMANDS
from benchmarks.sections.training import BASELINES, differences
from benchmarks.work import CLOCK, Work, samples


def record(work, **changes):
    counted = {"forwards": work.steps, "loss_reads": work.steps // work.log_every}
    return {**counted, "last_loss": 0.05, "best": 0.99, **changes}


def test_figures_are_medians_with_quartiles():
    assert median_of([3.0, 1.0, 2.0, 5.0, 4.0]) == "3.00 [2.00 - 4.00]"
    assert median_of([0.5]) == "0.50"
    assert median_of([]) == "-"


def test_equal_work_is_no_problem():
    work = Work(evaluates=True)
    assert differences("x", [(record(work), record(work, last_loss=0.08))], work) == []


@pytest.mark.parametrize(
    "change", [{"forwards": 3}, {"loss_reads": 1}, {"last_loss": 0.5}, {"best": 0.5}]
)
def test_other_work_than_the_baseline_is_a_problem(change):
    work = Work(evaluates=True)
    (problem,) = differences("x", [(record(work, **change), record(work))], work)
    assert problem.startswith("x: ")
    assert next(iter(change)) in problem


def test_a_work_counts_its_steps():
    assert len(samples(Work()).x_train) == 1797
    assert Work().steps == 30 * 57
    assert len(samples(Work(evaluates=True)).x_eval) == 360


def test_the_clock_times_what_lies_between_two_forwards():
    CLOCK.set(2, 5)
    for _ in range(7):
        CLOCK.tick()
    wall, cpu = CLOCK.seconds_per_forward()
    assert CLOCK.forwards == 7
    assert 0 <= wall < 1
    assert 0 <= cpu < 1


def test_each_system_has_a_module_and_each_baseline_is_one_of_them():
    for system, baseline in BASELINES.items():
        assert (command.RESULTS.parent / "systems" / f"{system}.py").is_file()
        assert BASELINES[baseline] == baseline
    assert {one.baseline for one in COMMANDS.values()} - {""} <= COMMANDS.keys()


def test_a_system_that_is_not_there_is_refused():
    with pytest.raises(SystemExit, match="no system torch_lop; there are: torch_loop"):
        Options(only=frozenset({"torch_lop"})).choose(["torch_loop"])


def test_a_report_is_a_table_and_a_json_file(tmp_path):
    report = Report("step", "a title", ("system", "us"), [("x", "1")], {"x": [1.0]})
    report.save(tmp_path)
    assert "| x | 1 |" in (tmp_path / "step.md").read_text()
    saved = json.loads((tmp_path / "step.json").read_text())
    assert saved["records"] == {"x": [1.0]}
    assert {"time", "load", "versions", "problems"} <= saved.keys()


@pytest.mark.slow
def test_one_tiny_round_runs(tmp_path, capsys):
    given = ["run", "epoch", "--quick", "--only", "torch_expkit", "--results", str(tmp_path)]
    code = command.main(given)
    saved = json.loads((tmp_path / "epoch.json").read_text())
    assert (code, saved["problems"]) == (0, [])
    ((own, baseline),) = saved["records"]["pairs"]["torch_expkit"]
    assert own["forwards"] == baseline["forwards"] == 4 * 45
    assert own["step_s"] > 0
    assert "| torch_expkit | 1 |" in capsys.readouterr().out
