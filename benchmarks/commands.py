"""Whole commands: how long they take, and when they reach a mark."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pairs import environment
from benchmarks.scripts.mark import MARK

_PATIENCE = 180.0
_GRACE = 15.0
_FIRST_STEP = Path(__file__).parent / "scripts" / "first_step.py"


class CommandError(Exception):
    """A command that ended with another code than it should."""


def timed(arguments: Sequence[str], exit_code: int = 0) -> dict[str, Any]:
    """Run ``python <arguments>`` in a directory with nothing in it but the module ``first_step``.

    Args:
        arguments: of the interpreter.
        exit_code: how the command must end.

    Returns:
        ``wall_s`` and ``cpu_s`` of the whole command, ``first_step_s`` from its beginning to the
        last of its marks (None without), and ``marks``, the number of processes that made one.

    Raises:
        CommandError: it ended otherwise; with the end of what it wrote.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        mark, output = directory / "mark", directory / "output"
        shutil.copy(_FIRST_STEP, directory)  # parts of a config may lie in the working directory
        with output.open("wb") as stream:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=directory,
                env=environment(**{MARK: str(mark)}),
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            with _patience(process.pid):
                _, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != exit_code:
            raise CommandError(f"exit code {process.returncode}: {output.read_text()[-2000:]}")
        marks = [float(line) for line in mark.read_text().split()] if mark.exists() else []
    return {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "first_step_s": max(marks) - began if marks else None,
        "marks": len(marks),
    }


@contextlib.contextmanager
def _patience(pid: int) -> Iterator[None]:
    """End a command that does not end: asked first, so that a launcher can end its ranks."""
    timers = [
        threading.Timer(_PATIENCE, os.kill, (pid, signal.SIGTERM)),
        threading.Timer(_PATIENCE + _GRACE, os.kill, (pid, signal.SIGKILL)),
    ]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
