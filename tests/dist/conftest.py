"""Projects for the tests, and commands that several tests look at."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dist.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project.make(tmp_path)
    yield project
    is_clean = project.gone_after(1.0)
    left = project.processes
    project.kill_all()
    assert is_clean, f"processes are left: {left}"


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Call a function with a directory of its own once, whichever process of pytest comes first."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def call(function: Callable[[Path], Any]) -> Any:
        directory = root / f"{function.__module__}.{function.__name__}"
        directory.mkdir(exist_ok=True)
        result = directory / "result.pickle"
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                result.write_bytes(pickle.dumps(function(directory)))
            return pickle.loads(result.read_bytes())

    return call
