"""The section that times saves: what is compared, what a table says, one tiny round."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command
from benchmarks.saver import SUBJECTS
from benchmarks.sections.checkpoint import COLUMNS, COMPARISONS, Comparison, row


def record(stall_s, lost_s, done_s, num_bytes=415_000_000):
    return {
        "stall_s": stall_s,
        "stall_cpu_s": stall_s / 2,
        "lost_s": lost_s,
        "done_s": done_s,
        "num_bytes": num_bytes,
    }


def test_a_line_has_the_ratios_of_its_pairs_and_their_targets():
    pairs = [(record(0.05, 0.1, 0.3), record(0.04, 0.2, 0.6))] * 2
    line = dict(zip(COLUMNS, row("torch", COMPARISONS[3], pairs), strict=True))
    assert line["way"] == "torch_expkit"
    assert line["against"] == "save"
    assert line["stands still ms"].startswith("50 ")
    assert line["stands still / other"].startswith("1.25 ")
    assert line["lost in all / other"].startswith("0.50 ")
    assert line["complete / other"].startswith("0.50 ")
    assert line["targets"] == "stands still <= 0.35, lost in all <= 1.00"
    assert line["MB"] == "415"


def test_a_comparison_with_no_target_says_none():
    pairs = [(record(0.05, 0.1, 0.3), record(0.04, 0.2, 0.6))]
    assert row("torch", Comparison("copy", "copy", {}), pairs)[COLUMNS.index("targets")] == ""


@pytest.mark.slow
@pytest.mark.parametrize("framework", SUBJECTS)
def test_one_tiny_round_of_saves_runs(tmp_path, capsys, framework):
    given = ["run", "checkpoint", "--quick", "--only", framework, "--results", str(tmp_path)]
    code = command.main(given)
    saved = json.loads((tmp_path / "checkpoint.json").read_text())
    assert (code, saved["problems"]) == (0, [])
    for one in COMPARISONS:
        ((own, other),) = saved["records"][framework][f"{one.way} / {one.other}"]
        for found, way in ((own, one.way), (other, one.other)):
            assert 0 < found["stall_s"] <= found["done_s"] < 60
            assert (found["num_bytes"] >= 36_000_000) == (way != "copy")
    assert f"| {framework}_expkit_blocking | write_fsync | 1 |" in capsys.readouterr().out
