"""One framework in a process of its own: each line it reads names a way to save, JSON answers."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.saves.subject import MATRIX_BYTES, Subject
from benchmarks.worker import serve
from expkit.checkpoint import CheckpointStore

SUBJECTS = {"torch": "TorchSubject", "paddle": "PaddleSubject"}
_PAUSE_S = 0.2  # before each save, for the disk to come to rest
_UNDISTURBED_STEPS = 5
_LEAST_STEPS = 3

Way = Callable[[Path], Callable[[], None]]
"""Saves below a directory; what it gives waits until all is written."""


@dataclass(frozen=True)
class Saving:
    """What is saved.

    Attributes:
        num_bytes: of the model and the two moments of each weight, about.
    """

    num_bytes: int


class Saver:
    """All ways to save one state.

    Args:
        subject: what is saved.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._copy = subject.copier()
        self.ways: dict[str, Way] = {
            "copy": lambda _: self._copied(),
            "save": self._saved,
            "save_fsync": self._saved_durably,
            "write_fsync": self._written,
            "expkit": self._stored,
            "expkit_blocking": self._stored_at_once,
        }

    def measure(self, name: str) -> dict[str, Any]:
        """Save in one way, and go on with steps until all is written.

        Returns:
            ``stall_s``, the time in the call; ``lost_s``, that and what the steps meanwhile took
            longer than undisturbed ones; ``done_s``, until all was written; ``stall_cpu_s``, the
            processor time of the call; ``num_bytes`` in files.
        """
        step = self._subject.step
        with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
            os.sync()
            time.sleep(_PAUSE_S)
            undisturbed = statistics.median(_timed(step) for _ in range(_UNDISTURBED_STEPS))
            began, began_cpu = time.perf_counter(), time.thread_time()
            wait = self.ways[name](Path(directory))
            stall, stall_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
            ending = _Ending(wait)
            steps = 0
            while ending.is_alive() or steps < _LEAST_STEPS:
                step()
                steps += 1
            lost = time.perf_counter() - began - steps * undisturbed
            files = [path for path in Path(directory).rglob("*") if path.is_file()]
            num_bytes = sum(path.stat().st_size for path in files)
        return {
            "stall_s": stall,
            "lost_s": lost,
            "done_s": ending.time() - began,
            "stall_cpu_s": stall_cpu,
            "num_bytes": num_bytes,
        }

    def _copied(self) -> Callable[[], None]:
        """What no copy of the state can go below."""
        self._copy()
        return _nothing

    def _saved(self, directory: Path) -> Callable[[], None]:
        self._subject.save(directory / "checkpoint")
        return _nothing

    def _saved_durably(self, directory: Path) -> Callable[[], None]:
        for path in self._subject.save(directory / "checkpoint"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        return _nothing

    def _written(self, directory: Path) -> Callable[[], None]:
        """What no durable save can go below: the tensors' own memory into one file, and fsync."""
        descriptor = os.open(directory / "checkpoint", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for array in self._subject.live():
            rest = memoryview(array.reshape(-1)).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        os.close(descriptor)
        return _nothing

    def _stored(self, directory: Path) -> Callable[[], None]:
        return self._store(CheckpointStore(directory / "checkpoints"), copies=True)

    def _stored_at_once(self, directory: Path) -> Callable[[], None]:
        store = CheckpointStore(directory / "checkpoints", background=False)
        return self._store(store, copies=False)  # all is written when the call returns

    def _store(self, store: CheckpointStore, copies: bool) -> Callable[[], None]:
        state = self._subject.driver.state(copies)
        ranks = {"0000": {"rng": state.pop("rng")}}  # as the trainer has it
        store.save(state | {"ranks": ranks}, step=1, epoch=0, metrics={}, score=None)
        return store.close


class _Ending:
    """Waits in a thread, and keeps the time at which all was written."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._time: float | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether something is still to be written."""
        return self._thread.is_alive()

    def time(self) -> float:
        """When all was written, on the clock of ``time.perf_counter``."""
        self._thread.join()
        if self._time is None:
            raise OSError("the save failed; what went wrong was written to stderr")
        return self._time

    def _run(self) -> None:
        self._wait()
        self._time = time.perf_counter()


def _nothing() -> None:
    """All is written already."""


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """``python -m benchmarks.saver FRAMEWORK SAVING``, the saving as JSON."""
    framework, saving = sys.argv[1], Saving(**json.loads(sys.argv[2]))

    def start() -> Callable[[str], dict[str, Any]]:
        module = importlib.import_module(f"benchmarks.saves.{framework}")
        num_matrices = max(1, saving.num_bytes // (3 * MATRIX_BYTES))
        return Saver(getattr(module, SUBJECTS[framework])(num_matrices)).measure

    serve(start)


if __name__ == "__main__":
    main()
