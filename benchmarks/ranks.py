"""Systems of several processes that train together."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.pairs import Record, Worker, WorkError
from benchmarks.work import Work
from benchmarks.worker import TRAIN
from expkit.launch.environment import Place, paddle_variables, torch_variables

HOST = "127.0.0.1"
_PATIENCE = 900.0
_OF_THE_SLOWEST = ("step_s", "total_s")
_OF_ALL = ("step_cpu_s", "total_cpu_s", "forwards")


class Ranks:
    """The processes of one system, started as its framework's launcher would start them.

    They live on between trainings, as their process group does. Where one fails the others may wait
    for it in vain, so all are ended then.

    Args:
        system: name of a module of `benchmarks.systems`; begins with the framework.
        work: what they train.

    Raises:
        WorkError: the system cannot be imported.
    """

    def __init__(self, system: str, work: Work) -> None:
        places = _places(system.partition("_")[0], work.ranks)
        with ThreadPoolExecutor(work.ranks) as pool:
            starts = [pool.submit(Worker, system, work, **variables) for variables in places]
        failures = [start.exception() for start in starts if start.exception()]
        self._workers = [start.result() for start in starts if not start.exception()]
        for failure in failures[:1]:
            self.close()
            raise WorkError(str(failure)) from failure

    def train(self, request: str = TRAIN) -> Record:
        """See `Trains.train`; elapsed time is that of the slowest, processor time that of all."""
        for worker in self._workers:
            worker.ask(request)
        try:
            return merged(self._answers())
        except WorkError:
            for worker in self._workers:
                worker.kill()
            raise

    def close(self) -> None:
        """See `Trains.close`: they may wait for each other at the end, so all are told first."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.close()

    def _answers(self) -> list[Record]:
        """The answers in the order of the ranks, taken as they come."""
        found: dict[int, Record] = {}
        deadline = time.monotonic() + _PATIENCE
        with selectors.DefaultSelector() as waiting:
            for rank, worker in enumerate(self._workers):
                waiting.register(worker.answers, selectors.EVENT_READ, rank)
            while waiting.get_map():
                ready = waiting.select(deadline - time.monotonic())
                if not ready:
                    raise WorkError(f"no answer within {_PATIENCE:g} s")
                for key, _ in ready:
                    waiting.unregister(key.fileobj)
                    try:
                        found[key.data] = self._workers[key.data].answer()
                    except WorkError as error:
                        raise WorkError(f"rank {key.data}: {error}") from error
        return [found[rank] for rank in sorted(found)]


def merged(records: list[Record]) -> Record:
    """The record of all ranks: times of the slowest or of all, the rest as rank 0 says."""
    slowest = {key: max(record[key] for record in records) for key in _OF_THE_SLOWEST}
    together = {key: sum(record[key] for record in records) for key in _OF_ALL}
    return records[0] | slowest | together


def _places(framework: str, ranks: int) -> Iterator[dict[str, str]]:
    """The environment of each rank."""
    ports = _free_ports(ranks)
    endpoints = [f"{HOST}:{port}" for port in ports]
    for rank in range(ranks):
        place = Place("benchmarks", rank, ranks, rank, ranks, HOST, ports[0])
        if framework == "torch":
            yield torch_variables(place)
        else:
            yield paddle_variables(place, endpoints) | {"PADDLE_DISTRI_BACKEND": "gloo"}


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
