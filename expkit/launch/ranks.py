"""The process of one rank: started, read, signalled, ended."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from expkit.launch.environment import STACKS_FD, SUPERVISED, without_place
from expkit.launch.kin import is_halted
from expkit.launch.output import STREAMS, Console, RankOutput, Routes
from expkit.launch.rendezvous import Framework, Rendezvous
from expkit.launch.vitals import Vitals

log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 16
_LAST_BYTES = 1 << 22
_DEATH_S = 5.0


@dataclass(frozen=True)
class Recipe:
    """How ranks are started.

    Attributes:
        command: the program and its arguments, the same for all ranks.
        job: what each rank reads on stdin.
        framework: whose variables they get.
        devices: the device of each rank, such as ``cpu`` and ``gpu:1``; None says nothing about it.
        routes: where their output goes.
        world_size: how many there are.
    """

    command: Sequence[str]
    job: str
    framework: Framework
    devices: Sequence[str] | None
    routes: Routes
    world_size: int

    def environment(self, rank: int, place: Mapping[str, str]) -> dict[str, str]:
        """The environment of a rank, but for what it inherits from its supervisor's pipes."""
        cores = len(os.sched_getaffinity(0))
        added = {"OMP_NUM_THREADS": str(max(1, cores // self.world_size))}
        if self.is_read(rank):
            # A pipe is no terminal: without this the last lines of a rank that is killed are lost.
            added["PYTHONUNBUFFERED"] = "1"
        device = "" if self.devices is None else self.devices[rank]
        if self.framework == "paddle" and device.startswith("gpu:"):
            added["FLAGS_selected_gpus"] = device.removeprefix("gpu:")
        elif self.framework == "paddle" and device == "cpu":
            added["PADDLE_DISTRI_BACKEND"] = "gloo"
        return {**added, **without_place(os.environ), **place}

    def is_read(self, rank: int) -> bool:
        """Whether the supervisor reads what a rank prints; else it has the supervisor's console."""
        return rank > 0 or self.routes.keeps_main


class RankProcess:
    """A rank under way, in a session of its own.

    It is reaped only when all is over: until then its process id is nobody else's, so that
    signals reach it and its children or nobody.

    Args:
        rank: its number.
        recipe: how it is started.
        rendezvous: where it meets the others.
        console: for its output.
        selector: where its pipes are waited for; the data of a key is what is to be called.
    """

    def __init__(
        self,
        rank: int,
        recipe: Recipe,
        rendezvous: Rendezvous,
        console: Console,
        selector: selectors.BaseSelector,
    ) -> None:
        self.vitals = Vitals(rank, beat_at=time.monotonic(), progress_at=time.monotonic())
        self.output = RankOutput(rank, recipe.routes, console)
        self._selector = selector
        self._readers: dict[int, Callable[[bytes], None]] = {}
        takers: dict[str, Callable[[bytes], None]] = {
            "control": lambda data: self.vitals.receive(data, time.monotonic()),
            "stacks": self._take_stacks,
        }
        if recipe.is_read(rank):
            takers |= {stream: partial(self.output.feed, stream) for stream in STREAMS}
        pipes = {name: os.pipe() for name in takers}
        theirs = {name: end for name, (_, end) in pipes.items()}
        try:
            self._process = _start(recipe, rank, rendezvous, theirs)
        except OSError:
            for ours, _ in pipes.values():
                os.close(ours)
            raise
        finally:
            for end in theirs.values():
                os.close(end)
        rendezvous.started(rank)
        for name, (ours, _) in pipes.items():
            self._read(ours, takers[name])
        self._pidfd = os.pidfd_open(self._process.pid)
        selector.register(self._pidfd, selectors.EVENT_READ, self._exited)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.vitals.exit_code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the rank alone: what it has started is its to end in order.

        Before it has taken up its work there is no order to end in: it is killed.
        """
        if not self.is_alive:
            return
        if not self.vitals.has_opened:
            self.vitals.is_given_up = True
            number = signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def ask_for_stacks(self) -> None:
        """Ask for the stacks of its threads; before it has taken up its work it would die of it."""
        if self.is_alive and self.vitals.has_opened:
            self.vitals.is_halted = is_halted(self._process.pid)
            self.send(signal.SIGUSR2)

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the rank and to all that it has started in its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill what is left of it, reap it, and take in its last words."""
        self.end(signal.SIGKILL)
        try:
            self._process.wait(timeout=_DEATH_S)
        except subprocess.TimeoutExpired:
            log.error("process %d of rank %d does not die", self._process.pid, self.vitals.rank)
        if self.is_alive:
            self._exited()
        self.output.close()

    # -- what comes in -----------------------------------------------------------------------------

    def _read(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        os.set_blocking(descriptor, False)
        self._readers[descriptor] = take
        self._selector.register(
            descriptor, selectors.EVENT_READ, partial(self._read_piece, descriptor)
        )

    def _read_piece(self, descriptor: int) -> bool:
        """Take in what is there, up to a limit; whether there may be more."""
        if descriptor not in self._readers:  # closed by an event of the same round
            return False
        try:
            data = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._stop_reading(descriptor)
            return False
        self._readers[descriptor](data)
        return True

    def _stop_reading(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        del self._readers[descriptor]
        os.close(descriptor)

    def _take_stacks(self, data: bytes) -> None:
        self.vitals.stacks += data
        self.output.note(data)

    def _exited(self) -> None:
        """Its process has ended: what it has written before counts first."""
        for descriptor in list(self._readers):
            for _ in range(_LAST_BYTES // _PIECE_BYTES):  # a child of it may write for ever
                if not self._read_piece(descriptor):
                    break
            if descriptor in self._readers:
                self._stop_reading(descriptor)
        self._selector.unregister(self._pidfd)
        self.vitals.stderr = self.output.tail
        self.vitals.is_shown = self.output.shows_errors
        self.vitals.exit_code = self._exit_code()
        self.vitals.exited_at = time.monotonic()
        os.close(self._pidfd)

    def _exit_code(self) -> int:
        if self._process.returncode is not None:
            return self._process.returncode
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        result = os.waitid(os.P_PIDFD, self._pidfd, flags)
        if result is None:
            return -signal.SIGKILL  # it was sent, and will be the end of it
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _start(
    recipe: Recipe, rank: int, rendezvous: Rendezvous, pipes: Mapping[str, int]
) -> subprocess.Popen[bytes]:
    """Start the process of a rank.

    Args:
        recipe: how.
        rank: its number.
        rendezvous: where it meets the others.
        pipes: the ends that it writes to: ``control``, ``stacks``, and its outputs where they are
            read; else it has those of this process.
    """
    variables = {
        **recipe.environment(rank, rendezvous.variables(rank)),
        SUPERVISED: str(pipes["control"]),
        STACKS_FD: str(pipes["stacks"]),
    }
    sockets = rendezvous.main_descriptors if rank == 0 else ()
    with os.fdopen(os.memfd_create("job"), "w+b") as job:
        # A file rather than a pipe: nobody waits for a rank that does not read.
        job.write(recipe.job.encode())
        job.seek(0)
        return subprocess.Popen(
            recipe.command,
            stdin=job,
            stdout=pipes.get("stdout"),
            stderr=pipes.get("stderr"),
            env=variables,
            start_new_session=True,
            pass_fds=(pipes["control"], pipes["stacks"], *sockets),
        )
