"""Signals to the supervisor: kept while ranks run, to be passed on to them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Forwarding:
    """While it is entered, signals are collected instead of acted on.

    Signals that this process ignores, as under ``nohup``, stay ignored. Outside the main thread,
    where Python allows no handlers, nothing is changed.

    Attributes:
        descriptor: becomes readable when a signal comes.
    """

    def __init__(self) -> None:
        self.descriptor, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self.descriptor, False)
        self._arrived: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}

    def take(self) -> list[signal.Signals]:
        """The signals that came since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 10)
        count = len(self._arrived)
        arrived, self._arrived[:count] = self._arrived[:count], []
        return arrived

    def __enter__(self) -> Forwarding:
        if threading.current_thread() is threading.main_thread():
            for number in FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._keep)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self.descriptor)
        os.close(self._wake)

    def _keep(self, number: int, _frame: FrameType | None) -> None:
        self._arrived.append(signal.Signals(number))
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"!")
