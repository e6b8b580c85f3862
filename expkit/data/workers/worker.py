"""A process that reads: forked, asked, heard, and ended."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, final

from expkit.core.batch import listed
from expkit.core.errors import DataError, ExpkitError, WorkerError
from expkit.data.dataset import Dataset
from expkit.data.randomness import Habits
from expkit.data.reading import Request, read
from expkit.data.workers.channel import Channel, Packet
from expkit.data.workers.children import let_stop_signals_pass
from expkit.launch.kin import die_with_parent, is_halted
from expkit.launch.signals import STOP_SIGNALS

_LOOK_S = 2.0  # between two looks whether a worker that does not answer is halted
_PATIENCE_S = 1.0  # with one that has closed its connection
_USUAL_REASONS = {
    signal.SIGKILL: " (is the memory full?)",
    signal.SIGBUS: " (has a memory-mapped file become shorter?)",
}


@final
class Ticket:
    """A batch that a worker has been asked for.

    Args:
        worker: which one.
        request: for what.

    Attributes:
        request: the same.
    """

    def __init__(self, worker: Worker, request: Request) -> None:
        self.request = request
        self._worker = worker
        self._answer: Any = None

    def settle(self, answer: Any) -> None:
        """Keep the answer until it is wanted."""
        self._answer = answer

    def wait(self) -> Mapping[str, Any]:
        """The fields, as soon as they are there."""
        while self._answer is None:
            self._worker.take_answer()
        fields, error, cause = self._answer
        if error is not None:
            raise error from (WorkerError(*cause) if cause else None)
        return fields  # type: ignore[no-any-return]


@final
class Worker:
    """A worker process, seen from the one that has forked it.

    Args:
        datasets: what it reads.
        others: the workers that were forked before.
    """

    def __init__(self, datasets: Sequence[Dataset], others: Sequence[Worker]) -> None:
        self.owner = os.getpid()
        # The kernel tells of the end of a thread, which is that of the process for the main thread.
        is_bound = threading.current_thread() is threading.main_thread()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.pid = _fork()
            except OSError:
                ours.close()
                raise
            if self.pid == 0:
                ours.close()
                for other in others:
                    other.close()
                _work(Channel(theirs), datasets, self.owner if is_bound else None)
        self._channel = Channel(ours)
        self._asked: deque[Ticket] = deque()
        self._is_closed = False
        self._fate: str | None = None
        self._pidfd = os.pidfd_open(self.pid)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)

    def ask(self, number: int, request: Request) -> Ticket:
        """Ask for a batch; what is answered meanwhile is kept."""
        ticket = Ticket(self, request)
        packet = self._channel.pack((number, request.indices, request.seeds))
        with contextlib.suppress(
            ConnectionError
        ):  # it is gone, as will be told when it is its turn
            while not self._channel.send(packet, wait=False) and self._receive():
                pass
        self._asked.append(ticket)
        return ticket

    def take_answer(self) -> None:
        """Wait for the answer to what was asked first, and hand it on.

        Raises:
            DataError: the worker is gone, or halted.
        """
        if not self._receive():
            indices = self._asked[0].request.indices
            raise DataError(
                f"worker process {self.pid} of data.num_workers {self._reap()} when it was to read "
                f"samples {listed(indices)}"
            )

    def _receive(self) -> bool:
        """Wait for an answer and hand it on; whether there was one, and the process is not gone."""
        try:
            self._wait()
            answer = self._channel.receive()
        except ConnectionResetError:  # it left questions behind; its answers are still there
            return self._receive()
        except EOFError:
            return False
        self._asked.popleft().settle(answer)
        return True

    def close(self) -> None:
        """Close the connection, at which it leaves when it looks next."""
        self._is_closed = True
        self._channel.close()

    def end(self, patience_s: float) -> None:
        """See to it that the process is gone: after so many seconds it is killed."""
        self._reap(patience_s)
        os.close(self._pidfd)

    def _wait(self) -> None:
        """Wait until there is an answer.

        Raises:
            EOFError: there will be none; a process that it has started may hold the connection.
            DataError: the process is halted, or closed.
        """
        if self._is_closed:
            raise DataError("the workers of data.num_workers were ended while a batch was wanted")
        was_halted = False
        while not (events := self._poll.poll(_LOOK_S * 1000)):
            halted = is_halted(self.pid)
            if halted and was_halted:
                raise DataError(
                    f"worker process {self.pid} of data.num_workers stands still since it was "
                    "sent SIGSTOP, or by a debugger"
                )
            was_halted = halted
        if [descriptor for descriptor, _ in events] == [self._pidfd]:
            raise EOFError

    def _reap(self, patience_s: float = _PATIENCE_S) -> str:
        """How it ended, if need be killed."""
        if self._fate is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(patience_s * 1000):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:  # somebody else has asked
                self._fate = "ended"
            else:
                self._fate = _fate(os.waitstatus_to_exitcode(status))
        return self._fate


def _fate(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    number = signal.Signals(-exit_code)
    return f"was ended by {number.name}{_USUAL_REASONS.get(number, '')}"


def _fork() -> int:
    """Fork; stop signals pass the child by from its first moment on."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # closed, or there is none
            stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with warnings.catch_warnings():  # of threads, which the child does not have
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            let_stop_signals_pass()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _work(channel: Channel, datasets: Sequence[Dataset], parent: int | None) -> NoReturn:
    """The life of a worker; with that of the parent it ends wherever it stands."""
    code = 1
    try:
        if parent is not None:
            die_with_parent()
            if os.getppid() != parent:
                raise EOFError
        gc.freeze()  # what it shares with the parent shall not be touched, and so copied
        if "torch" in sys.modules:  # its threads are the parent's
            sys.modules["torch"].set_num_threads(1)
        _serve(channel, datasets)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(channel: Channel, datasets: Sequence[Dataset]) -> NoReturn:
    habits = [Habits() for _ in datasets]
    while True:
        number, indices, seeds = channel.receive()
        done = "read"
        try:
            fields = read(datasets[number], indices, seeds, habits[number])
            done = "handed over"
            packet = channel.pack((fields, None, None))
            del fields
        except ExpkitError as error:
            packet = _told(channel, error, error.__cause__)
        except BaseException as error:  # a data set that exits, too
            what = f"samples {listed(indices)} cannot be {done} by a worker"
            packet = _told(channel, DataError(f"{what}: {type(error).__name__}: {error}"), error)
        channel.send(packet)


def _told(channel: Channel, error: ExpkitError, cause: BaseException | None) -> Packet:
    """The message that a batch cannot be read."""
    told = None
    if cause is not None:
        text = "".join(traceback.format_exception(cause)).rstrip()
        told = text, [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    try:
        return channel.pack((None, error, told))
    except Exception:  # of a class that cannot be pickled
        return channel.pack((None, DataError(str(error)), told))
