"""Nothing shows that a run was killed: the short form, see CONTRIBUTING for longer ones.

A driver of one process is killed in copies of a process, each a fraction of a second. Those of
several ranks are real commands of five seconds each, hence few: the family of torch and that of
Paddle have more than thirty kills each together.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.faults.children import ROOT
from tests.faults.phases import PHASES, Moment, phase
from tests.faults.report import Report
from tests.faults.traces import Traces, leftovers

RANKS = ("--steps=63", "--kills=3", "--points", "weights half written")
SERIES = {
    "torch": ("--steps=53", "--kills=40", "--points"),
    "torch_ddp": RANKS,
    "paddle": ("--steps=63", "--kills=30"),
    "paddle_fleet": RANKS,
    "numpy": ("--steps=63", "--kills=30"),
}
LEAST = {"torch": 40, "torch_ddp": 3, "paddle": 30, "paddle_fleet": 3, "numpy": 30}

REDUCED = {
    "records are not taken back": (
        "from expkit.run.records import JsonLinesLogger as L; L.rewind = lambda *_: None",
        "PROBLEM: metrics.jsonl: ",
    ),
    "callbacks begin anew": (
        "from expkit.core.events import EventBus as E; E.load_state = lambda *_: None",
        "PROBLEM: last: ",
    ),
    "saves are left out": (
        "from expkit.checkpoint import CheckpointStore as S; save = S.save; S.save = "
        "lambda *a, step, **k: save(*a, step=step, **k) if step % 20 == 0 or step == 53 else None",
        "steps again, allowed are",
    ),
    "later checkpoints stay when a run goes back": (
        "from expkit.checkpoint import CheckpointStore as S; S.go_back = lambda *_: None",
        "PROBLEM: ",  # records have a gap, or a resume is ahead of them
    ),
    "leftovers are not removed": (
        "import expkit.run.atomic as a; a.remove_leftovers = lambda *_: None",
        "PROBLEM: left over: ",
    ),
}
"""What expkit would do less well, and by which words that is found out."""


def faults(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    """``python -m tests.faults`` after a statement."""
    command = f"{before}\nimport runpy\nrunpy.run_module('tests.faults', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", command, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def count(text: str, name: str) -> int:
    """A number of the report."""
    return int(re.search(rf"^\| {name} \| (\d+) \|$", text, re.MULTILINE)[1])


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each series came to; two at a time."""
    for name in ("torch", "paddle"):
        pytest.importorskip(name)
    commands = {driver: partial(faults, "--driver", driver, *SERIES[driver]) for driver in SERIES}
    for what, (before, _) in REDUCED.items():
        directory = tmp_path_factory.mktemp("faults")  # it stays, for there are problems
        arguments = ("--driver=numpy", "--steps=53", f"--directory={directory}", "--kills=0")
        points = ("--points", "directory made", "after the rewind")
        commands[what] = partial(faults, *arguments, *points, before=before)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(commands, pool.map(lambda run: run(), commands.values()), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSeries:
    @pytest.mark.parametrize("driver", SERIES)
    def test_nothing_shows_that_a_run_was_killed(self, reports, driver):
        report = reports[driver]
        assert report.returncode == 0, report.stdout + report.stderr
        assert count(report.stdout, "kills") >= LEAST[driver]
        assert count(report.stdout, "checkpoints rejected") == 0
        assert count(report.stdout, "different results") == 0

    @pytest.mark.parametrize("what", REDUCED)
    def test_what_is_done_less_well_is_found_out(self, reports, what):
        report = reports[what]
        assert report.returncode == 1, report.stdout + report.stderr
        assert REDUCED[what][1] in report.stdout


def test_a_series_in_which_no_kill_falls_into_a_save_has_tried_nothing():
    report = Report("numpy")
    report.kills.update({"a step": 100, "resuming": 10})
    report.conclude()
    assert report.problems == ["no kill fell into a save: nothing was tried"]
    report = Report("numpy")
    report.kills.update({"a step": 100, "pruning": 1})
    report.conclude()
    assert report.problems == []


def test_traces_tell_what_is_different():
    one = Traces({"a": "1", "b": "2"}, {}, ("x", "y"), {"train/loss": (1, 2)}, {"steps": 2})
    other = Traces({"a": "1", "b": "3"}, {}, ("x",), {"train/loss": (1, 2, 2)}, {"steps": 2})
    assert one.differences(one) == []
    assert one.differences(other) == [
        "last: 1 differ, such as b",
        "points: 1 differ, such as train/loss",
        "metrics.jsonl: 1 lines for 2: none in common",
    ]


def test_hidden_names_are_left_over(tmp_path):
    for name in ("checkpoints/.step-00000005.0123456789ab.tmp/x", ".run.json.0123456789ab.tmp"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert leftovers(tmp_path) == [
        ".run.json.0123456789ab.tmp",
        "checkpoints/.step-00000005.0123456789ab.tmp",
    ]


class TestPhase:
    """A run of 20 steps with a checkpoint each 5."""

    @pytest.fixture
    def outputs(self, tmp_path: Path) -> Path:
        run = tmp_path / "2026-11-30/07-12-03-digits"
        (run / "checkpoints").mkdir(parents=True)
        for name in ("run.json", "overrides.yaml"):
            (run / name).touch()
        return tmp_path

    def put(self, outputs: Path, *names: str, last: int = 0, steps: int = 0, log: str = ""):
        (run,) = outputs.glob("*/*")
        for name in names:
            (run / "checkpoints" / name).mkdir(parents=True)
        if last:
            (run / "checkpoints/last.json").write_text(json.dumps({"step": last}))
        line = {"epoch": 0, "time": 0.0, "split": "train", "metrics": {}}
        lines = [json.dumps({"step": step + 1, **line}) + "\n" for step in range(steps)]
        (run / "metrics.jsonl").write_text("".join(lines))
        with (run / "train.log").open("a") as file:
            file.write(log)

    def phase(self, outputs: Path, *names: str, **more) -> str:
        before = Moment.of(outputs)
        self.put(outputs, *names, **more)
        found = phase(before, Moment.of(outputs), 20)
        assert found in PHASES
        return found

    def test_before_anything(self, tmp_path):
        nothing = Moment.of(tmp_path)
        assert phase(nothing, nothing, 20) == "before the run"

    @pytest.mark.parametrize(
        ("names", "more", "expected"),
        [
            ((), {"steps": 3}, "before the first save"),
            ((".step-00000005.0123456789ab.tmp",), {"steps": 6}, "writing a checkpoint"),
            (
                (".step-00000005.0123456789ab.tmp/MANIFEST.json",),
                {"steps": 6},
                "before the rename",
            ),
            (("step-00000005",), {"steps": 6}, "after the rename"),
            (("step-00000005",), {"steps": 6, "last": 5}, "a step"),
            (("step-00000020",), {"steps": 20, "last": 20}, "the end"),
            (
                ("step-00000010", ".step-00000005.0123456789ab.tmp"),
                {"steps": 10, "last": 10},
                "pruning",
            ),
        ],
    )
    def test_of_a_first_launch(self, outputs, names, more, expected):
        assert self.phase(outputs, *names, **more) == expected

    def test_of_a_launch_that_goes_on(self, outputs):
        old = ".step-00000010.0123456789ab.tmp"  # from the launch before
        self.put(outputs, "step-00000005", old, last=5, steps=8, log="run\n")
        assert self.phase(outputs, steps=8, log="run\n") == "resuming"
        said = "run\nresumed from x (last, step 5)\n"
        assert self.phase(outputs, steps=5, log=said) == "resuming"
        assert self.phase(outputs, steps=6, log=said) == "a step"
