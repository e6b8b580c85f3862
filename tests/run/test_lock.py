from __future__ import annotations

import json
import os

import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.lock import RunLock


def test_a_second_owner_is_refused_and_told_the_first(tmp_path):
    status = tmp_path / "run.json"
    status.write_text(json.dumps({"pid": 123, "host": "here"}))
    with (
        RunLock(tmp_path, status),
        pytest.raises(RunDirectoryError, match="process 123 on here") as caught,
        RunLock(tmp_path, status),
    ):
        raise AssertionError("two owners")
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_directory_may_be_taken_again_when_its_owner_is_done(tmp_path):
    for _ in range(2):
        with RunLock(tmp_path, tmp_path / "run.json"):
            pass


def test_a_killed_owner_blocks_nobody(tmp_path):
    child = os.fork()
    if child == 0:
        RunLock(tmp_path, tmp_path / "run.json").__enter__()
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    with RunLock(tmp_path, tmp_path / "run.json"):
        pass
