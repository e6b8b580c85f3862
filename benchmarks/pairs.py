"""Paired measurement: each system right beside its baseline, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from benchmarks.work import Work
from benchmarks.worker import TRAIN, WARM_UP, describe

log = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent
GENERATIONS = 2  # fresh processes half-way, so that one lucky memory layout decides nothing

Record = dict[str, Any]
Pairs = dict[str, list[tuple[Record, Record]]]
"""System -> (its record, its baseline's record), one pair for each round."""


class WorkError(Exception):
    """A system that could not do its work."""


class Trains(Protocol):
    """What is measured: one process, or several that train together."""

    def train(self, request: str = TRAIN) -> Record:
        """Train once, or a few epochs where the request is `WARM_UP`.

        Raises:
            WorkError: it failed.
        """
        ...

    def close(self) -> None:
        """End it."""
        ...


class Worker:
    """A process that trains as often as it is asked to.

    Args:
        system: name of a module of `benchmarks.systems`.
        work: what it trains.
        module: what the process runs; it takes the other two as arguments.
        variables: environment variables of the process.

    Raises:
        WorkError: the system cannot be imported.
    """

    def __init__(
        self, system: str, work: Any, module: str = "benchmarks.worker", **variables: str
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, system, describe(work)],
            cwd=ROOT,
            env=environment(**variables),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.answer()
        except WorkError:
            self.close()
            raise

    @property
    def answers(self) -> IO[str]:
        """Where its answers come from."""
        assert self._process.stdout is not None
        return self._process.stdout

    def train(self, request: str = TRAIN) -> Record:
        """See `Trains.train`; or whatever else the process does on request."""
        self.ask(request)
        return self.answer()

    def ask(self, request: str) -> None:
        """Have it train; `answer` waits for the end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Ask for nothing more."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self.dismiss()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.answers.close()

    def answer(self) -> Record:
        """The record of the training that was asked for.

        Raises:
            WorkError: it failed.
        """
        line = self.answers.readline()
        answer: Record = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise WorkError(answer["error"])
        return answer


def environment(**extra: str) -> dict[str, str]:
    """The environment of everything that is measured: one thread, this checkout first."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    quiet = {"GLOG_minloglevel": "3", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **threads, **quiet, "PYTHONPATH": str(ROOT), **extra}


def paired(
    work: Work,
    baselines: Mapping[str, str],
    rounds: int,
    start: Callable[[str, Work], Trains] = Worker,
) -> tuple[Pairs, dict[str, str]]:
    """Measure systems against their baselines.

    Args:
        work: what all of them train.
        baselines: system -> the system it is compared with; itself for a baseline, which shows what
            chance alone does to a ratio.
        rounds: pairs of each system.
        start: how a system gets going.

    Returns:
        The pairs of each system, and what went wrong by system.
    """
    pairs: Pairs = {system: [] for system in baselines}
    failed: dict[str, str] = {}
    generations = min(GENERATIONS, rounds)
    for generation in range(generations):
        with _workers(work, baselines, failed, start) as workers:
            for number in range(generation, rounds, generations):
                for system in _rotated(list(baselines), number):
                    if {system, baselines[system]} & failed.keys():
                        continue
                    try:
                        pairs[system].append(_pair(workers, system, baselines[system], number))
                    except WorkError as error:
                        failed[system] = str(error)
                done = sum(len(found) for found in pairs.values())
                log.info("%d of %d pairs", done, rounds * len(pairs))
    return pairs, failed


@contextlib.contextmanager
def _workers(
    work: Work,
    baselines: Mapping[str, str],
    failed: dict[str, str],
    start: Callable[[str, Work], Trains],
) -> Iterator[dict[str, Trains]]:
    """Each system warm: what only the first training pays is not measured."""
    workers: dict[str, Trains] = {}
    try:
        for system in dict.fromkeys([*baselines.values(), *baselines]):
            if system in failed:
                continue
            try:
                workers[system] = start(system, work)
                workers[system].train(WARM_UP)
            except WorkError as error:
                failed[system] = str(error)
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def _pair(
    workers: Mapping[str, Trains], system: str, baseline: str, number: int
) -> tuple[Record, Record]:
    """Which of the two goes first alternates."""
    if number % 2:
        own = workers[system].train()
        return own, workers[baseline].train()
    other = workers[baseline].train()
    return workers[system].train(), other


def _rotated(systems: Sequence[str], number: int) -> list[str]:
    start = number % len(systems)
    return [*systems[start:], *systems[:start]]
