"""What a worker's signals are to processes that its data set starts: nothing of theirs."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from expkit.launch.kin import die_with_parent
from expkit.launch.signals import STOP_SIGNALS


def let_stop_signals_pass() -> None:
    """In a worker: stop signals do nothing; what it starts can be stopped, and does not stay.

    Ignored signals would be ignored by each process that is started here, a program too, which so
    could not be terminated. A function as handler is left behind by a program, and forks put it
    away. Signals that were ignored before, as SIGHUP is under nohup, stay so.
    """
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _pass)
            signal.siginterrupt(number, False)  # foreign code does not see that there was one
    worker, thread = os.getpid(), threading.get_ident()

    def begin() -> None:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is _pass:
                signal.signal(number, signal.SIG_DFL)
        # The kernel watches the thread that forks: others than the main one end early.
        if os.getppid() == worker and threading.get_ident() == thread:
            die_with_parent()

    os.register_at_fork(after_in_child=begin)


def _pass(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
