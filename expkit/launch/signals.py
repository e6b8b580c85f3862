"""Stop signals: the first one asks, the second one ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def exit_code_of(number: int) -> int:
    """What a process returns that a signal has stopped in order: 128 + its number.

    SIGUSR1 counts as SIGTERM: by it a scheduler announces that it will send that one.
    """
    return 128 + (signal.SIGTERM if number == signal.SIGUSR1 else number)


class StopSignals:
    """While it is entered, SIGINT, SIGTERM, SIGHUP and SIGUSR1 end the run in order.

    Before somebody listens (``on_stop``), a signal raises KeyboardInterrupt at once. Then the first
    signal calls the listener, which lets the step under way finish and saves; another one raises
    KeyboardInterrupt. Outside the main thread, where Python allows no handlers, nothing is changed;
    a signal that is ignored, as SIGHUP is under nohup, stays so.

    Attributes:
        received: the first signal that came, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._listener: Callable[[str], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def on_stop(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the signal's name at the first signal."""
        self._listener = listener

    def restore(self) -> None:
        """Set the handlers again: Paddle puts its own, which kill, in their place when imported."""
        for number in self._before:
            signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Let further signals pass until the end: what is being written shall be whole."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    @property
    def exit_code(self) -> int:
        """What a process stopped by the signal returns, see `exit_code_of`."""
        return exit_code_of(self.received or signal.SIGINT)

    def exit_code_of(self, reason: str) -> int:
        """The same for a run that stopped for ``reason``: a signal's name, also of another rank's.

        A run that stopped for something else has the exit code of the signal received here.
        """
        named = signal.Signals.__members__.get(reason)
        return self.exit_code if named is None else exit_code_of(named)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        is_first = self.received is None
        self.received = self.received or signal.Signals(number)
        if is_first and self._listener is not None:
            self._listener(signal.Signals(number).name)
            return
        raise KeyboardInterrupt(signal.Signals(number).name)
