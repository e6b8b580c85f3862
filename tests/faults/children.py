"""Processes that are started to be killed: copies of this one, or real commands."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import select
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from expkit.app import run_command
from expkit.config import validation
from expkit.run.history import key_of
from tests.faults.traps import RANK_VARIABLES, VARIABLE, WHERE, Trap
from tests.launch.conftest import session_members

ROOT = Path(__file__).parents[2]
_LINGER_S = 5.0


class Child:
    """A process of its own session, whose output goes to a file.

    Args:
        work: what it does; its exit code.
        output: where what it says is appended.
        directory: where it works.
    """

    def __init__(self, work: Callable[[], int], output: Path, directory: Path) -> None:
        self.marker = uuid.uuid4().hex
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = _alone(work, output, directory, self.marker)
            finally:
                os._exit(code)
        self._code: int | None = None
        self._descriptor = os.pidfd_open(self.pid)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, negative for a signal; None where it still runs after so long."""
        if self._code is None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            if poll.poll(max(seconds, 0.0) * 1000):
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                os.close(self._descriptor)
        return self._code

    def kill(self) -> None:
        """End it, and what else is in its session."""
        if self._code is None:
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def ranks(self) -> dict[int, int]:
        """Of a command that has started ranks, the process of each."""
        found = {}
        for pid in session_members(self.marker):
            with contextlib.suppress(OSError):
                entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
                for name in RANK_VARIABLES:
                    if name in variables:
                        found[int(variables[name])] = pid
        return found

    @property
    def left(self) -> list[int]:
        """What runs of it and of all that it started."""
        return session_members(self.marker)

    def kill_all(self) -> None:
        """End it, and all that it started."""
        self.kill()
        for pid in self.left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _alone(work: Callable[[], int], output: Path, directory: Path, marker: str) -> int:
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(directory)
    os.environ["EXPKIT_TEST_MARKER"] = marker
    try:
        return work()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Launcher:
    """Starts the command line in a directory.

    Args:
        directory: where it is given.
        is_real: whether as ``python -m expkit``; else in a copy of this process, in which all is
            imported and has been used once, so that it comes to its first step at once.
        has_ranks: whether the command starts processes, of which rank 0 writes.
    """

    def __init__(self, directory: Path, *, is_real: bool, has_ranks: bool = False) -> None:
        self._directory = directory
        self.is_real = is_real
        self._has_ranks = has_ranks

    def start(self, argv: Sequence[str], output: Path, trap: Trap | None = None) -> Child:
        """Give a command line.

        Args:
            argv: its arguments.
            output: file for what it says.
            trap: where it shall kill itself, or its rank 0 one of the two.
        """

        def copy() -> int:
            if trap is not None:
                trap.set()
            return run_command(argv)

        def real() -> int:
            os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            if trap is not None:
                os.environ |= {
                    "PYTHONPATH": f"{Path(__file__).with_name('on_start')}{os.pathsep}{ROOT}",
                    VARIABLE: trap.to_text(),
                    WHERE: "0" if self._has_ranks else "",
                }
            os.execve(sys.executable, [sys.executable, "-m", "expkit", *argv], os.environ)

        return Child(real if self.is_real else copy, output, self._directory)

    def warm_up(self, argv: Sequence[str]) -> None:
        """Give a command line in this very process, which copies will then start from."""
        validation.check = remembered(validation.check)
        here = Path.cwd()
        os.chdir(self._directory)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = run_command(argv)
        finally:
            os.chdir(here)
        if code != 0:
            raise RuntimeError(said.getvalue())
        if not _is_alone():
            message = "has threads, which its copies would lack: set OMP_NUM_THREADS=1"
            raise RuntimeError(f"this process {message}")
        gc.freeze()


def _is_alone() -> bool:
    """Whether this process has one thread; one that has ended may be listed a little longer."""
    until = time.monotonic() + _LINGER_S
    while threading.active_count() > 1 or len([*Path("/proc/self/task").iterdir()]) > 1:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def remembered(
    check: Callable[..., validation.Composition],
) -> Callable[..., validation.Composition]:
    """``check``, once for all command lines that differ in places alone.

    It takes longer than all else that a copy does before its first step, and writes nothing.
    """
    places = ("output_dir", "resume")

    @cache
    def compose(overrides: tuple[str, ...]) -> validation.Composition:
        return check(overrides)

    def composed(overrides: Sequence[str], **_: object) -> validation.Composition:
        given = {key_of(text): text.partition("=")[2] for text in overrides}
        rest = tuple(text for text in overrides if key_of(text) not in places)
        composition = compose(rest)
        own: Mapping[str, str] = {key: given[key] for key in places if key in given}
        return replace(
            composition, config={**composition.config, **own}, overrides=tuple(overrides)
        )

    return composed
