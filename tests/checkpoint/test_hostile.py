"""A checkpoint from elsewhere can do no more than fail to load."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from expkit.checkpoint.find import find_checkpoint
from expkit.core.errors import ExpkitError
from tests.hostile_files import CORPUS, LOADS, NAME, payload, torch_file

SECONDS, GROWTH_BYTES = 2.0, 200 << 20
HARMLESS = {builder.__name__ for builder in LOADS}


@pytest.fixture
def mark(tmp_path):
    """What appears where a payload is executed."""
    return tmp_path / "mark"


def run_with(root, name, mark):
    """A run directory whose only checkpoint is a hostile one, and where that is."""
    if name.startswith("device") and os.geteuid() != 0:
        pytest.skip("making a device needs root")
    run = root / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.json").write_text('{"status": "interrupted", "task": "train"}')
    place = CORPUS[name](run / "checkpoints", mark)
    if place.name != NAME:  # no checkpoint at all to a run
        return place, place
    return run, place


def peak_bytes():
    """The most memory that this process has had since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def open_files():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def forget_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the system does not forget the peak of memory")


@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_checkpoint_is_refused_soon_and_does_nothing(tmp_path, mark, name, which):
    """``resume`` asks for the last, ``init_from`` for the best, both by run or by checkpoint."""
    run, place = run_with(tmp_path, name, mark)
    for path in dict.fromkeys((run, place)):
        modules, files = set(sys.modules), open_files()
        forget_peak()
        before, began = peak_bytes(), time.monotonic()
        if name in HARMLESS:
            state = find_checkpoint(path, which).state
            assert state["callbacks"]["evil"]["_target_"] == "os.mkdir"
        else:
            with pytest.raises(ExpkitError) as refused:
                find_checkpoint(path, which)
            assert len(str(refused.value)) < 2000
        assert time.monotonic() - began < SECONDS
        assert peak_bytes() - before < GROWTH_BYTES
        assert not mark.exists()
        assert set(sys.modules) == modules
        assert open_files() == files


def test_the_payloads_would_leave_a_mark(tmp_path):
    """What this corpus tests would be seen."""
    pickle.loads(payload(tmp_path / "a"))
    place = torch_file(tmp_path, tmp_path / "b")
    with zipfile.ZipFile(place) as archive:
        pickle.loads(archive.read("archive/data.pkl"))
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([pickle.loads], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(io.BytesIO(buffer.getvalue()))["w"]
    assert (tmp_path / "a").is_dir()
    assert (tmp_path / "b").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "name"), [("torch", "torch_file"), ("paddle", "pdparams")])
def test_the_frameworks_own_loaders_would_execute_them(tmp_path, mark, framework, name):
    """The reason why none of them is on a way from a checkpoint."""
    pytest.importorskip(framework)
    if framework == "torch":
        load = f"torch.load({str(torch_file(tmp_path, mark))!r}, weights_only=False)"
    else:
        (tmp_path / "x.pdparams").write_bytes(payload(mark))
        load = f"paddle.load({str(tmp_path / 'x.pdparams')!r})"
    subprocess.run([sys.executable, "-c", f"import {framework}; {load}"], check=False)
    assert mark.is_dir()
