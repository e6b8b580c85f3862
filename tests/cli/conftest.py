"""A user's directory with small data, and the command run in it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from expkit.app import run_command
from expkit.run.records import Record, read_records

MY_DATA = '''
import os
import signal
import time

import numpy as np


class Slow:
    """Each fetch of the training set takes a moment."""

    def __init__(self, fields, delay):
        self.fields, self.delay = fields, delay

    def __len__(self):
        return len(self.fields["y"])

    def fetch(self, indices):
        time.sleep(self.delay)
        return {name: column[indices] for name, column in self.fields.items()}


class Bad(Slow):
    """Cannot give sample 7."""

    def fetch(self, indices):
        if 7 in indices:
            raise ValueError("bad sample 7")
        return super().fetch(indices)


def rows(n, shift=0):
    place = np.arange(n * 4, dtype=np.float32).reshape(n, 4) + shift
    x = np.sin(place)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}


def tiny(n=20, kind="good", delay=0.0):
    train, held = rows(n), rows(10, shift=1000)
    if kind == "out_of_range":
        train["y"][3] = 9
    if kind == "float_labels":
        train["y"] = train["y"] + 0.5
    if kind == "not_finite":
        train["x"][11, 2] = np.nan
    if kind == "no_eval":
        return train, None
    if kind == "raises":
        raise OSError("no such file: /data/rows.csv")
    if kind == "sys_exit":
        raise SystemExit(0)
    if kind == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if kind == "bad_item":
        return Bad(train, delay), held
    return (Slow(train, delay) if delay else train), held


def from_file(path):
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    fields = {"x": table[:, :4], "y": table[:, 4].astype(np.int64)}
    return fields, fields
'''

MY_CALLBACKS = '''
import os
import signal
import sys

from expkit.core.events import Callback


class Probe(Callback):
    """Does something after one step."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def step_end(self, context):
        if context.progress.step != self.step:
            return
        if self.what == "raise":
            raise RuntimeError("the probe raised")
        if self.what == "stop":
            context.request_stop("the probe has seen enough")
        if self.what.startswith("SIG"):
            for name in self.what.split("+"):
                os.kill(os.getpid(), getattr(signal, name))
'''

CONF = {
    "data/tiny.yaml": """
        # Twenty rows that a linear model can tell apart
        source:
          _target_: my_data.tiny
          n: 20
          kind: good
          delay: 0.0
        batch_size: 4
        global_batch_size: null
        eval_batch_size: null
        drop_last: false
        num_workers: 0
        info:
          num_features: 4
          num_outputs: 2
    """,
    "data/table.yaml": """
        # Rows of a CSV file
        source:
          _target_: my_data.from_file
          path: d.csv
        batch_size: 4
        info:
          num_features: 4
          num_outputs: 2
    """,
    "callbacks/probe.yaml": """
        probe:
          _target_: my_callbacks.Probe
          step: 3
          what: none
    """,
    "experiment/small.yaml": """
        # @package _global_
        defaults:
          - override /driver: numpy
          - override /data: tiny
          - override /model: mlp
        model:
          hidden: [6]
        trainer:
          n_epochs: 2
          log_every: 1
    """,
}

SMALL = "experiment=small"


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Project:
    """A user's directory and what was run there."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def runs(self) -> list[Path]:
        """All run directories below ``outputs``, by name; jobs of sweeps are not among them."""
        return sorted(file.parent for file in self.path.glob("outputs/*/*/run.json"))

    def run(self) -> Path:
        """The only run."""
        (run,) = self.runs()
        return run

    def process(self, *args: str, wait: bool = True, **options: Any) -> Any:
        """The real command: ``python -m expkit`` as its own process."""
        command = [sys.executable, "-m", "expkit", *args]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        options = {"cwd": self.path, "env": environment, "text": True} | options
        if not wait:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            return subprocess.Popen(command, **pipes, **options)
        done = subprocess.run(command, capture_output=True, timeout=90, check=False, **options)
        return Finished(done.returncode, done.stdout, done.stderr)


def info(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def config(run: Path) -> dict[str, Any]:
    return yaml.safe_load((run / "config.yaml").read_text())


def overrides(run: Path) -> list[str]:
    return yaml.safe_load((run / "overrides.yaml").read_text())


def records(run: Path, split: str = "train") -> list[Record]:
    return [record for record in read_records(run / "metrics.jsonl") if record.split == split]


def weights(run: Path) -> bytes:
    """The weights of the last checkpoint, bit for bit."""
    newest = max((run / "checkpoints").glob("step-*"))
    return (newest / "model.safetensors").read_bytes()


def tree(run: Path) -> dict[str, bytes]:
    """Every file below a directory with its content."""
    return {
        str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()
    }


def forget_own_modules() -> None:
    """Make the next import of ``my_data`` and the like look into the directory of the next test."""
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A directory with ``conf/``, ``my_data.py`` and ``my_callbacks.py``."""
    (tmp_path / "my_data.py").write_text(MY_DATA)
    (tmp_path / "my_callbacks.py").write_text(MY_CALLBACKS)
    for name, text in CONF.items():
        file = tmp_path / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip())
    yield Project(tmp_path)
    forget_own_modules()


@pytest.fixture
def command(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """The command in this process, in the project; needs a driver that is imported already."""
    monkeypatch.chdir(project.path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    level = logging.getLogger().level

    def run(*args: str) -> Finished:
        capfd.readouterr()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                try:
                    code = run_command(args)
                except SystemExit as end:  # Hydra ends by itself
                    code = end.code if isinstance(end.code, int) else 1
        finally:
            forget_own_modules()
            logging.getLogger().setLevel(level)
        captured = capfd.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture
def imported(project: Project, tmp_path: Path) -> Callable[..., tuple[Finished, set[str]]]:
    """The real command, and the top-level modules that it had imported when it ended."""
    (project.path / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import atexit, os, sys
        def _dump():
            with open(os.environ["MODULES_FILE"], "w") as file:
                file.write("\\n".join({name.split(".")[0] for name in sys.modules}))
        atexit.register(_dump)
        """)
    )
    report = tmp_path / "modules.txt"
    project.environment = {"PYTHONPATH": str(project.path), "MODULES_FILE": str(report)}

    def run(*args: str) -> tuple[Finished, set[str]]:
        with contextlib.suppress(FileNotFoundError):
            report.unlink()
        return project.process(*args), set(report.read_text().split())

    return run
