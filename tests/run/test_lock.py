from __future__ import annotations

import json
import os
import re
import socket

import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.lock import RunLock


def test_a_second_owner_is_refused_and_told_the_first(tmp_path):
    """Who that is the system knows; the status may still name the process before it."""
    status = tmp_path / "run.json"
    status.write_text(json.dumps({"pid": 123, "host": "here"}))
    own = f"process {os.getpid()} on {socket.gethostname()}"
    with (
        RunLock(tmp_path, status),
        pytest.raises(RunDirectoryError, match=re.escape(f"in use by {own}:")) as caught,
        RunLock(tmp_path, status),
    ):
        raise AssertionError("two owners")
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"pid": 123, "host": "there"}', "process 123 on there"), ("{", "another process")],
)
def test_an_owner_on_another_machine_is_told_by_its_status(tmp_path, monkeypatch, text, told):
    status = tmp_path / "run.json"
    status.write_text(text)
    monkeypatch.setattr("expkit.run.lock._holder", lambda path: None)
    with (
        RunLock(tmp_path, status),
        pytest.raises(RunDirectoryError, match=f"in use by {told}:"),
        RunLock(tmp_path, status),
    ):
        raise AssertionError("two owners")


def test_of_two_at_once_one_wins_and_the_other_is_told_which(tmp_path):
    for _ in range(50):
        wait, go = os.pipe()
        hold, end = os.pipe()
        children = [_want(tmp_path, wait, go, hold, end) for _ in range(2)]
        os.close(wait)
        os.close(go)
        ended = []
        while not ended:
            ended = [found for child in children if (found := os.waitpid(child, os.WNOHANG))[0]]
        ((loser, status),) = ended
        assert os.waitstatus_to_exitcode(status) == 3
        children.remove(loser)
        os.close(hold)
        os.close(end)
        _, status = os.waitpid(children[0], 0)
        assert os.waitstatus_to_exitcode(status) == 0


def _want(path, wait, go, hold, end):
    """A process that takes the directory when ``go`` is closed, and lets go when ``end`` is."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(go)
        os.close(end)
        os.read(wait, 1)
        RunLock(path, path / "run.json").__enter__()
        os.read(hold, 1)
        code = 0
    except RunDirectoryError as refused:
        code = 3 if re.search(r"process \d+ on", str(refused)) else 4
    finally:
        os._exit(code)


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
