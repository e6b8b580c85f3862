"""Ranks that need no framework, and what is left of them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from expkit.launch.supervisor import Ended, Supervisor

ROOT = Path(__file__).parents[2]
DUMMY = [sys.executable, str(Path(__file__).with_name("dummy_rank.py"))]


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie, which PID 1 may reap late."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def session_members(marker: str) -> list[int]:
    """The running processes whose environment has ``EXPKIT_TEST_MARKER`` set so."""
    wanted = f"EXPKIT_TEST_MARKER={marker}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                has_it = wanted in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if has_it and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found


class Launch:
    """Runs dummy ranks, and knows whether any of their processes is left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.marker = directory.name
        self.logs = directory / "logs"
        self.seconds = 0.0

    def job(self, acts: dict[int, list], **more) -> str:
        return json.dumps({"acts": acts, "directory": str(self.directory), **more})

    def supervisor(self, acts: dict[int, list], **options) -> Supervisor:
        more = {key: options.pop(key) for key in ("token",) if key in options}
        return Supervisor(
            **{
                "command": DUMMY,
                "job": self.job(acts, **more),
                "framework": "torch",
                "num_processes": 2,
                "logs": self.logs,
                "worker_output": "only_error",
                "timeout_s": 30.0,
                "grace_s": 1.0,
                **options,
            }
        )

    def __call__(self, acts: dict[int, list], **options) -> Ended:
        began = time.monotonic()
        ended = self.supervisor(acts, **options).run()
        self.seconds = time.monotonic() - began
        return ended

    @property
    def leftovers(self) -> list[int]:
        return session_members(self.marker)


@pytest.fixture
def launch(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("EXPKIT_TEST_MARKER", tmp_path.name)
    launch = Launch(tmp_path)
    yield launch
    assert launch.leftovers == []
