"""One process at a time in a run directory."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
from pathlib import Path
from types import TracebackType

from expkit.core.errors import RunDirectoryError
from expkit.run.regular import read_regular

log = logging.getLogger(__name__)


class RunLock:
    """Holds a run directory while it is entered; the system lets go of it when the process ends.

    The lock is on the directory itself, so that a killed run leaves nothing to clear away.

    Args:
        path: the run directory.
        status_file: tells, in a refusal, which process of another machine has it.

    Raises:
        RunDirectoryError: on entering, where another process holds it.
    """

    def __init__(self, path: Path, status_file: Path) -> None:
        self._path = path
        self._status_file = status_file
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise RunDirectoryError(
                f"{self._path} is in use by {self._owner()}: wait for its end, or begin a new run "
                "from its weights with init_from=..."
            ) from None
        except OSError as error:
            log.warning("%s cannot be locked on this file system: %s", self._path, error.strerror)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def _owner(self) -> str:
        """Who has it: as the system knows, or the status file where that is another machine."""
        pid = _holder(self._path)
        if pid is not None:
            return f"process {pid} on {socket.gethostname()}"
        try:
            info = json.loads(read_regular(self._status_file))
            return f"process {info['pid']} on {info['host']}"
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return "another process"


def _holder(path: Path) -> int | None:
    """The process of this machine that has locked a path; None where there is none to be seen."""
    try:
        status = path.stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in locks.splitlines():
        _, kind, _, _, pid, place, *_ = line.replace(" -> ", " ").split()
        if kind == "FLOCK" and place == f"{device}:{status.st_ino}" and int(pid) > 0:
            return int(pid)
    return None
