"""Paired measurement: each system beside its baseline, in rounds, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.worker import describe
from benchmarks.work import Work

log = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent
Record = dict[str, Any]
Pairs = dict[str, list[tuple[Record, Record]]]
"""System -> (its record, that of its baseline), one for each round."""


class WorkError(Exception):
    """A system that could not do its work."""


class Worker:
    """A process that trains as often as it is asked to.

    Args:
        system: name of a module of `benchmarks.systems`.
        work: what it trains.
    """

    def __init__(self, system: str, work: Work) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", system, describe(work)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE if log.isEnabledFor(logging.DEBUG) else subprocess.DEVNULL,
        )
        self._answer()

    def train(self) -> Record:
        """Train once."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("train\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> Record:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: Record = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise WorkError(answer["error"])
        return answer
