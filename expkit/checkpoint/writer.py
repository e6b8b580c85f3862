"""Who does the writing: the caller itself, or one thread behind its back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Threads, one if not more, that take jobs in order; made for the first, and after `close`.

    Jobs that were submitted are done even where the interpreter ends meanwhile.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Hand a job over."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return self._pool.submit(job)

    def close(self) -> None:
        """Wait for the jobs and end the thread; safe to call twice."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class Writer(ABC):
    """Does one job at a time."""

    @abstractmethod
    def submit(self, job: Callable[[], None]) -> None:
        """Do a job after the one before it, whose error is raised here if it failed."""

    @abstractmethod
    def poll(self) -> None:
        """Raise what the last job raised, once, if it has ended."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until nothing is under way; raises what the last job raised, once."""

    @abstractmethod
    def close(self) -> None:
        """Wait and release what is held; safe to call twice, and jobs may follow."""


class InlineWriter(Writer):
    """Does the job at once."""

    def submit(self, job: Callable[[], None]) -> None:
        """Do it; its error is the caller's."""
        job()

    def poll(self) -> None:
        """Nothing is ever under way."""

    def wait(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing to release."""


class BackgroundWriter(Writer):
    """Does the job in a thread; at most one is under way, so that one state is held in memory."""

    def __init__(self) -> None:
        self._worker = Worker("checkpoint-writer")
        self._pending: Future[None] | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Hand the job over and return."""
        self.wait()
        self._pending = self._worker.submit(job)

    def poll(self) -> None:
        """Raise its error, if the job under way has ended with one."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the job under way, if any."""
        pending = self._pending
        if pending is None:
            return
        wait([pending])  # a signal may end this early: then the job is still pending
        self._pending = None
        try:
            pending.result()
        finally:
            del pending  # else its error would hold the state until the next garbage collection

    def close(self) -> None:
        """Wait and end the thread, also when the last job failed."""
        try:
            self.wait()
        finally:
            self._worker.close()
