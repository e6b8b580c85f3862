"""One process of a `expkit.testing.RankPool`, as its owner sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from expkit.launch.environment import Place, paddle_variables, torch_variables

_LEAVE_IT = os.WEXITED | os.WNOWAIT
_MOST_SHOWN = 4000
"""Characters of what a process has printed last that are shown."""

_PLACES = frozenset(
    (
        *torch_variables(Place("", 0, 1, 0, 1, "", 0)),
        *paddle_variables(Place("", 0, 1, 0, 1, "", 0), [""]),
    )
)
"""Variables that would give a process the place of the one that made the pool."""


class RankProcess:
    """A process that serves as one rank, with its pipes.

    Args:
        variables: what its environment has besides that of this process.

    Attributes:
        answers: where its answers are read.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        environment = {
            "OMP_NUM_THREADS": "1",
            **{name: text for name, text in os.environ.items() if name not in _PLACES},
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            **variables,
        }
        read_end, write_end = os.pipe()
        with ExitStack() as stack:
            stack.callback(os.close, write_end)
            self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "expkit.testing.rank_server",
                    str(os.getpid()),
                    str(write_end),
                ],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env=environment,
                pass_fds=[write_end],
                start_new_session=True,
                text=True,
            )
        self.answers = os.fdopen(read_end, encoding="utf-8")

    def send(self, request: str) -> None:
        """Hand a request over; a dead process shows where its answer is read."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()

    def exit_code(self) -> int:
        """How a process ended that has closed its pipe; negative where a signal ended it."""
        if not self._ends_by(time.monotonic() + 5.0):
            self.kill()
        found = os.waitid(os.P_PID, self._process.pid, _LEAVE_IT)
        assert found is not None  # it has waited
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def dump_stacks(self) -> None:
        """Have a process that is stuck print where."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR2)
        time.sleep(0.2)

    def printed(self) -> str:
        """The end of what the process has printed."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _MOST_SHOWN))
        return self._output.read().decode(errors="replace")

    def ask_to_leave(self) -> None:
        """Tell the process that there are no more requests."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, deadline: float) -> None:
        """Give the process until ``deadline``, then kill it; release what belongs to it."""
        self._ends_by(deadline)
        self.kill()  # what it has started may live on
        self._process.wait()
        self.ask_to_leave()
        self.answers.close()
        self._output.close()

    def _ends_by(self, deadline: float) -> bool:
        """Wait for the end, but let the number of the process, and of its group, stay taken."""
        while os.waitid(os.P_PID, self._process.pid, _LEAVE_IT | os.WNOHANG) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True
