"""One system in a process of its own: each line it reads asks for a training, JSON answers."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.work import CLOCK, Work

TRAIN, WARM_UP = "train", "warm up"
_READ = 5  # losses at the end whose mean is compared


def main() -> None:
    """``python -m benchmarks.worker SYSTEM WORK``, the work as JSON."""
    name, work = sys.argv[1], Work(**json.loads(sys.argv[2]))

    def start() -> Callable[[str], dict[str, Any]]:
        system = importlib.import_module(f"benchmarks.systems.{name}")
        return lambda request: _train(system, work.shortened() if request == WARM_UP else work)

    serve(start)


def serve(start: Callable[[], Callable[[str], dict[str, Any]]]) -> None:
    """Answer each line of the standard input with a line of JSON.

    Args:
        start: gives what answers; called once, and the first line says whether it could.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a system prints shall not look like an answer
    try:
        respond = start()
        answer: dict[str, Any] = {"ready": True}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    for request in sys.stdin:
        try:
            answer = respond(request.strip())
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


def _train(system: Any, work: Work) -> dict[str, Any]:
    for module, seed in (("torch", "manual_seed"), ("paddle", "seed")):
        if module in sys.modules:
            getattr(sys.modules[module], seed)(0)
    random.seed(0)
    np.random.seed(0)
    epoch = work.forwards // work.epochs
    CLOCK.set(epoch, work.forwards - epoch)
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = system.train(work, Path(directory))
        total, total_cpu = time.perf_counter() - wall, time.process_time() - cpu
    forward, forward_cpu = CLOCK.seconds_per_forward()
    last = outcome.losses[-_READ:]
    return {
        "step_s": forward * work.accumulate,
        "step_cpu_s": forward_cpu * work.accumulate,
        "total_s": total,
        "total_cpu_s": total_cpu,
        "forwards": CLOCK.forwards,
        "loss_reads": len(outcome.losses),
        "last_loss": statistics.fmean(last) if last else None,
        "best": outcome.best,
        "final_loss": outcome.final,
    }


def describe(work: Any) -> str:
    """A work, or another dataclass, as the command line takes it."""
    return json.dumps(dataclasses.asdict(work))


if __name__ == "__main__":
    main()
