"""Worker processes that read batches ahead, in the order in which they are wanted."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.dataset import Dataset
from expkit.data.reading import Reader, Request
from expkit.data.workers.worker import Ticket, Worker

_GRACE_S = 0.5  # for workers to leave by themselves


@final
class WorkerPool:
    """Processes that are forked when the first batch is wanted, and read for all sets.

    Batch i of a reading is read by worker i modulo the number of workers, and each worker is a few
    batches ahead. Stop signals pass them by: this process ends them, and the kernel does where this
    process is killed. What is changed in a data set later they do not see.

    Args:
        datasets: what is read.
        num_workers: how many processes.
        prefetch: batches that each of them is ahead.

    Raises:
        ConfigError: the system is not Linux.
    """

    def __init__(self, datasets: Sequence[Dataset], num_workers: int, prefetch: int) -> None:
        if not hasattr(os, "memfd_create"):
            message = f"is {num_workers}, but this system has no shared memory without names"
            raise ConfigError([Problem("data.num_workers", message, "data.num_workers=0")])
        self._datasets = list(datasets)
        self._num_workers = num_workers
        self._prefetch = prefetch
        self._workers: list[Worker] = []
        self._end = weakref.finalize(self, _end, self._workers, os.getpid())

    def reader(self, dataset: Dataset) -> Reader:
        """Reads one of the data sets."""
        number = next(i for i, each in enumerate(self._datasets) if each is dataset)
        return _PoolReader(self, number)

    def close(self) -> None:
        """End the workers; if there is something to read afterwards, others take their place."""
        self._end()

    def read(
        self, number: int, requests: Iterable[Request]
    ) -> Iterator[tuple[Request, Mapping[str, Any]]]:
        """The fields of each batch of a data set, in order; see `Reader`."""
        self._start()
        wanted, workers = iter(requests), itertools.cycle(self._workers)
        tickets: deque[Ticket] = deque()
        try:
            for request in itertools.islice(wanted, self._num_workers * self._prefetch):
                tickets.append(next(workers).ask(number, request))
            while tickets:
                ticket = tickets.popleft()
                fields = ticket.wait()
                for request in itertools.islice(wanted, 1):
                    tickets.append(next(workers).ask(number, request))
                yield ticket.request, fields
        except GeneratorExit:  # what is under way is read, and dropped
            raise
        except BaseException:  # there may be half a message on its way
            self.close()
            raise

    def _start(self) -> None:
        """Fork, where there are no workers of this very process."""
        if self._end.alive and self._workers and self._workers[0].owner == os.getpid():
            return
        self._workers = []
        self._end = weakref.finalize(self, _end, self._workers, os.getpid())
        try:
            for _ in range(self._num_workers):
                self._workers.append(Worker(self._datasets, self._workers))
        except OSError as error:
            started = len(self._workers)
            self.close()
            raise DataError(
                f"data.num_workers={self._num_workers}: worker process {started + 1} cannot be "
                f"started: {error}; allowed: fewer of them, or 0"
            ) from error


@final
class _PoolReader(Reader):
    def __init__(self, pool: WorkerPool, number: int) -> None:
        self._pool = pool
        self._number = number

    def read(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Mapping[str, Any]]]:
        """The fields of each batch, in order, read ahead."""
        return self._pool.read(self._number, requests)


def _end(workers: list[Worker], owner: int) -> None:
    """End workers, unless they are those of the process that this one was forked from."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.close()
    until = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.end(max(0.0, until - time.monotonic()))
    workers.clear()
