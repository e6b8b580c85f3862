"""What a rank tells its supervisor: that it lives and gets on, what failed, how it ended.

Lines of JSON on a pipe, each an object with one key: ``beat``, ``error``, ``outcome`` or ``done``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from expkit.launch.environment import STACKS_FD, SUPERVISED, take_descriptor
from expkit.launch.kin import die_with_parent

BEAT_S = 1.0
"""Seconds between two signs of life."""

_TRACEBACK_CHARACTERS = 1 << 16


class Control(ABC):
    """A rank's line to whoever watches over it."""

    @staticmethod
    def open() -> Control:
        """The line to the supervisor, or one that leads nowhere where there is none.

        The first thing that a rank does: from here on it shows that it lives, ends when its
        supervisor ends, and can be asked for its stacks.
        """
        if SUPERVISED not in os.environ:
            return Unsupervised()
        return Supervised(int(os.environ[SUPERVISED]), take_descriptor(STACKS_FD))

    @staticmethod
    def read_job() -> str:
        """What the supervisor has handed to this rank: standard input to its end."""
        return sys.stdin.buffer.read().decode()

    @abstractmethod
    def follow(self, pulse: Callable[[], int]) -> None:
        """Tell with each sign of life the value of ``pulse``, too; any change of it is progress.

        Work after which it is called is expected to make progress: what takes long must count.
        """

    @abstractmethod
    def error(
        self, what: str, traceback: str, *, is_consequence: bool, exit_code: int | None = None
    ) -> None:
        """Tell what ended this rank; the process has to end soon, and need not print it.

        Args:
            what: type and message of the error, in a line.
            traceback: as it is to be shown.
            is_consequence: whether another rank's failure is behind it.
            exit_code: that this rank's process will return, if it gets there.
        """

    @abstractmethod
    def outcome(self, outcome: Mapping[str, Any]) -> None:
        """Tell the result, which can be written as JSON, and that all is done.

        Its ``exit_code`` becomes that of the whole run.
        """

    @abstractmethod
    def done(self) -> None:
        """Tell that all is done, and written: however the process ends now, nothing is lost."""


class Unsupervised(Control):
    """For a process that nobody watches, or a launcher of another make."""

    def follow(self, pulse: Callable[[], int]) -> None:
        """Nobody asks."""

    def error(
        self, what: str, traceback: str, *, is_consequence: bool, exit_code: int | None = None
    ) -> None:
        """Nobody to tell."""

    def outcome(self, outcome: Mapping[str, Any]) -> None:
        """Nobody to tell."""

    def done(self) -> None:
        """Nobody to tell."""


class Supervised(Control):
    """The line to expkit's own supervisor.

    Args:
        control: descriptor of the pipe for messages.
        stacks: descriptor of the pipe for the stacks of all threads, which are written without the
            interpreter's help: at SIGUSR2 and at a crash. None leaves them to stderr.
    """

    def __init__(self, control: int, stacks: int | None) -> None:
        # Two nets for the death of the supervisor. The kernel's reaches a rank that holds the
        # interpreter lock for ever; the broken pipe one whose supervisor was gone before it asked.
        die_with_parent()
        target = sys.__stderr__ if stacks is None else stacks
        if target is not None:
            faulthandler.enable(target)
            faulthandler.register(signal.SIGUSR2, target, all_threads=True)
        for descriptor in (control, stacks):
            if descriptor is not None:
                os.set_inheritable(descriptor, False)
        self._control = control
        self._pulse: Callable[[], int | None] = lambda: None
        self._one_writer = threading.Lock()
        self._send({"beat": None})
        threading.Thread(target=self._live, name="heartbeat", daemon=True).start()

    def follow(self, pulse: Callable[[], int]) -> None:
        """Tell with each sign of life the value of ``pulse``, too."""
        self._pulse = pulse

    def error(
        self, what: str, traceback: str, *, is_consequence: bool, exit_code: int | None = None
    ) -> None:
        """Tell what ended this rank."""
        report = {
            "what": what,
            "traceback": traceback[-_TRACEBACK_CHARACTERS:],
            "is_consequence": is_consequence,
            "exit_code": exit_code,
        }
        self._send({"error": report})

    def outcome(self, outcome: Mapping[str, Any]) -> None:
        """Tell the result, and that all is done."""
        self._send({"outcome": dict(outcome)})

    def done(self) -> None:
        """Tell that all is done."""
        self._send({"done": True})

    def _live(self) -> None:
        pause = threading.Event()
        while not pause.wait(BEAT_S):
            self._send({"beat": self._pulse()})

    def _send(self, message: Mapping[str, Any]) -> None:
        rest = json.dumps(message).encode() + b"\n"
        with self._one_writer:
            try:
                while rest:
                    rest = rest[os.write(self._control, rest) :]
            except BrokenPipeError:
                _end_at_once()


def _end_at_once() -> None:
    """End this process, and what it has started where it leads a process group of its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
