"""What a user has in a directory: small data, callbacks that note, and harm, and the config."""

from __future__ import annotations

MY_PARTS = '''
import ctypes
import json
import os
import signal
import sys
import time

import numpy as np

from expkit.core.events import Callback
from expkit.launch.environment import find_place

place = find_place()
RANK = -1 if place is None else place.rank
if os.environ.get("FAIL_TO_IMPORT_ON_RANK") == str(RANK):
    import a_module_that_is_not_there


def rows(n, shift=0):
    place = np.arange(n * 4, dtype=np.float32).reshape(n, 4) + shift
    x = np.sin(place)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}


def tiny(n=24):
    return rows(n), rows(11, shift=1000)


def listening():
    """The local addresses, in the kernel's hexadecimal form, on which this process listens."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.append(fields[1])
    return found


class Recorder(Callback):
    """Notes who takes part, and which samples each of them trains on."""

    def __init__(self, note=None):
        self.note = note

    def fit_start(self, context):
        self._write(
            context,
            pid=os.getpid(),
            parent=os.getppid(),
            world_size=context.driver.world_size,
            driver=type(context.driver).__name__,
            note=self.note,
            listening=listening(),
            command=sys.orig_argv,
        )

    def batch_start(self, context, batch, indices):
        counted = indices if batch.weights is None else indices[batch.weights > 0]
        progress = context.progress
        self._write(context, epoch=progress.epoch, step=progress.step + 1, samples=counted.tolist())

    def _write(self, context, **line):
        directory = context.run_dir / "seen"
        directory.mkdir(exist_ok=True)
        with (directory / f"rank{context.driver.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\\n")


class Probe(Callback):
    """Does something after one step on one rank, and takes its time in every step on all."""

    def __init__(self, step=3, rank=1, what="none", delay=0.0, marker="marker"):
        self.step, self.rank, self.what, self.delay, self.marker = step, rank, what, delay, marker

    def step_end(self, context):
        time.sleep(self.delay)
        if context.progress.step != self.step or self.rank not in (-1, context.driver.rank):
            return
        act = getattr(self, "_" + self.what.lower(), None)
        if self.what != "none" and self.what != "print":
            with open("fault", "w") as file:
                file.write(repr(time.time()))
        if act is not None:
            act()
        elif self.what.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.what))

    def _raise(self):
        raise ValueError("bad sample 7")

    def _exit(self):
        os._exit(0)

    def _leave(self):
        raise SystemExit(3)

    def _segfault(self):
        ctypes.string_at(0)

    def _spin(self):
        while True:
            pass

    def _print(self):
        print(f"rank {RANK} speaks")
        print(f"rank {RANK} complains", file=sys.stderr)

    def _kill_once(self):
        try:
            open(self.marker, "x").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
'''

CONF = {
    "data/tiny.yaml": """
        # Rows that a linear model can tell apart
        source:
          _target_: my_parts.tiny
          n: 24
        batch_size: 4
        global_batch_size: 4
        eval_batch_size: null
        drop_last: false
        num_workers: 0
        info:
          num_features: 4
          num_outputs: 2
    """,
    "callbacks/recorder.yaml": """
        recorder:
          _target_: my_parts.Recorder
          note: ${seed}
    """,
    "callbacks/probe.yaml": """
        probe:
          _target_: my_parts.Probe
          step: 3
          rank: 1
          what: none
          delay: 0.0
          marker: marker
    """,
    "experiment/small.yaml": """
        # @package _global_
        defaults:
          - override /data: tiny
          - override /model: mlp
          - override /callbacks: [progress, recorder, probe]
          - override /logger: []
        model:
          hidden: [6]
        trainer:
          n_epochs: 2
          log_every: 1
    """,
}
