"""What a rank says, and how it is understood."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from expkit.launch.blame import Rules, failures_of, sign_of
from expkit.launch.control import Control, Unsupervised
from expkit.launch.vitals import Vitals
from tests.launch.conftest import ROOT


def test_without_a_supervisor_the_line_leads_nowhere(monkeypatch):
    monkeypatch.delenv("EXPKIT_CONTROL_FD", raising=False)
    control = Control.open()
    assert isinstance(control, Unsupervised)
    control.follow(lambda: 1)
    control.error("ValueError", "", is_consequence=False)
    control.outcome({})
    control.done()


def test_a_supervisor_imports_nothing_heavy():
    code = "import sys, expkit.launch.supervisor; print(*sys.modules)"
    text = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert not {"numpy", "omegaconf", "hydra", "torch", "paddle"} & set(text.split())


def test_messages_come_in_pieces_and_what_is_none_is_passed_over(caplog):
    vitals = Vitals(1, beat_at=0.0)
    text = b'{"beat": 3}\n[]\nnonsense\n{"outcome": {"exit_code": 0}}\n'
    for index, byte in enumerate(text):
        vitals.receive(bytes([byte]), float(index))
    assert vitals.pulse == 3
    assert vitals.outcome == {"exit_code": 0}
    assert vitals.done_at == len(text) - 1
    assert len(caplog.records) == 2


def test_only_a_pulse_that_changes_is_progress():
    vitals = Vitals(0, beat_at=0.0)
    for now, pulse in enumerate([None, 5, 5, 5, 6, 6]):
        vitals.receive(json.dumps({"beat": pulse}).encode() + b"\n", float(now))
    assert (vitals.beat_at, vitals.progress_at) == (5.0, 4.0)
    assert sign_of(vitals, Rules(timeout_s=3.0), 6.9) is None
    assert sign_of(vitals, Rules(timeout_s=3.0), 7.0).what.startswith("no progress for 3 s")


def test_a_rank_without_a_pulse_may_take_its_time_while_nobody_is_done():
    vitals = Vitals(0, beat_at=99.0)
    assert sign_of(vitals, Rules(timeout_s=3.0), 100.0) is None
    assert sign_of(vitals, Rules(timeout_s=3.0, first_done_at=97.0), 100.0) is not None


def test_of_ranks_that_hang_the_one_furthest_behind_is_blamed():
    ranks = [Vitals(rank, beat_at=100.0, pulse=pulse) for rank, pulse in enumerate([7, 6, 7])]
    failures = failures_of(ranks, Rules(timeout_s=10.0), 100.0)
    assert [failure.rank for failure in failures] == [1, 0, 2]


def test_a_traceback_without_end_is_cut_to_its_end():
    read, write = os.pipe()
    code = (
        "import os\nfrom expkit.launch.control import Control\ncontrol = Control.open()\n"
        "control.error('X', 'a' * 10**6 + 'end', is_consequence=False)\n"
    )
    environment = {**os.environ, "EXPKIT_CONTROL_FD": str(write)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, pass_fds=(write,), cwd=ROOT
    ):
        os.close(write)
        with os.fdopen(read) as lines:
            [error] = [
                message["error"] for line in lines if "error" in (message := json.loads(line))
            ]
    assert len(error["traceback"]) == 1 << 16
    assert error["traceback"].endswith("aend")
