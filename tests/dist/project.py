"""A user's directory with small data and callbacks that note, and harm; the command run in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from expkit.run.records import Record, read_records
from tests.dist.user_files import CONF, MY_PARTS
from tests.launch.conftest import session_members

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable

TIMEOUT_S = 100.0
"""How long any command may take: far above what it needs on a machine with nothing else to do."""

SMALL = "experiment=small"
TWO_TORCH = (SMALL, "driver=torch_ddp", "driver.num_processes=2")
TWO_PADDLE = (SMALL, "driver=paddle_fleet", "driver.num_processes=2")


@dataclass(frozen=True)
class Finished:
    """A command that has ended.

    Attributes:
        code: its exit code.
        out: what it said on stdout.
        err: what it said on stderr.
        ended: when, in seconds since 1970.
    """

    code: int
    out: str
    err: str
    ended: float

    @property
    def text(self) -> str:
        return self.out + self.err


T = TypeVar("T")


def together(calls: Mapping[str, Callable[[], T]], at_once: int = 3) -> dict[str, T]:
    """Call functions in threads, some at a time: much of a command's time is waiting."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        return {name: future.result() for name, future in futures.items()}


@dataclass
class Project:
    """A user's directory, what was run there, and the processes that were started for it."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def make(cls, path: Path) -> Project:
        path.mkdir(parents=True, exist_ok=True)
        (path / "my_parts.py").write_text(MY_PARTS)
        for name, text in CONF.items():
            file = path / "conf" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text).lstrip())
        return cls(path)

    # -- running ---------------------------------------------------------------------------------

    def start(
        self, *args: str, command: Sequence[str] = (PYTHON, "-m", "expkit"), **environment: str
    ) -> subprocess.Popen[str]:
        """A command under way, in a session of its own."""
        return subprocess.Popen(
            [*command, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.path,
            start_new_session=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT),
                "EXPKIT_TEST_MARKER": self.marker,
                **self.environment,
                **environment,
            },
        )

    def run(self, *args: str, timeout_s: float = TIMEOUT_S, **options: Any) -> Finished:
        """A command, to its end."""
        return self.finish(self.start(*args, **options), timeout_s)

    def finish(self, child: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> Finished:
        """Wait for a command that was started."""
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            out, err = child.communicate()
            raise AssertionError(f"{child.args} took {timeout_s:.0f} s\n{out}{err}") from None
        return Finished(child.returncode, out, err, time.time())

    @property
    def processes(self) -> list[int]:
        """What runs of all that was started here."""
        return session_members(self.marker)

    def gone_after(self, seconds: float) -> bool:
        """Whether nothing runs any more, at the latest after some time."""
        deadline = time.monotonic() + seconds
        while self.processes:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def kill_all(self) -> None:
        """End what was started here."""
        for pid in self.processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    # -- looking ---------------------------------------------------------------------------------

    def runs(self) -> list[Path]:
        """All run directories below ``outputs``, by name; jobs of sweeps are not among them."""
        return sorted(file.parent for file in self.path.glob("outputs/*/*/run.json"))

    def run_directory(self) -> Path:
        """The only one."""
        (run,) = self.runs()
        return run

    def fault_at(self) -> float:
        """When a probe did its harm."""
        return float((self.path / "fault").read_text())

    def wait_for_step(
        self, step: int, child: subprocess.Popen[str], timeout_s: float = TIMEOUT_S
    ) -> Path:
        """The run directory, once its records have come to a step."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for run in self.runs():
                if any(record.step >= step for record in records(run)):
                    return run
            assert child.poll() is None, child.communicate()
            time.sleep(0.02)
        raise AssertionError(f"no step {step} in {TIMEOUT_S:.0f} s")


# -- run directories -----------------------------------------------------------------------------


def info(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def config(run: Path) -> dict[str, Any]:
    return yaml.safe_load((run / "config.yaml").read_text())


def records(run: Path, split: str = "train") -> list[Record]:
    file = run / "metrics.jsonl"
    if not file.exists():
        return []
    return [record for record in read_records(file) if record.split == split]


def losses(run: Path) -> dict[int, float]:
    """The training loss of each step."""
    return {record.step: record.metrics["loss"] for record in records(run)}


def weights(run: Path) -> bytes:
    """The weights of the last checkpoint, bit for bit."""
    newest = max((run / "checkpoints").glob("step-*"))
    return (newest / "model.safetensors").read_bytes()


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("step-*"))


def seen(run: Path, rank: int) -> list[dict[str, Any]]:
    """What the recorder of a rank has written."""
    lines = (run / "seen" / f"rank{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ranks_seen(run: Path) -> list[dict[str, Any]]:
    """How each rank introduced itself, by rank; the last time where it was started again."""
    ranks = range(len(list((run / "seen").glob("rank*.jsonl"))))
    return [[line for line in seen(run, rank) if "pid" in line][-1] for rank in ranks]


def samples(run: Path) -> dict[int, list[int]]:
    """The sorted samples of each step, over all ranks."""
    steps: dict[int, list[int]] = {}
    for _, step, indices in _trained(run):
        steps.setdefault(step, []).extend(indices)
    return {step: sorted(indices) for step, indices in sorted(steps.items())}


def epochs(run: Path) -> dict[int, list[int]]:
    """The sorted samples of each epoch, over all ranks."""
    found: dict[int, list[int]] = {}
    for epoch, _, indices in _trained(run):
        found.setdefault(epoch, []).extend(indices)
    return {epoch: sorted(indices) for epoch, indices in sorted(found.items())}


def _trained(run: Path) -> Iterator[tuple[int, int, list[int]]]:
    for rank in range(len(list((run / "seen").glob("rank*.jsonl")))):
        for line in seen(run, rank):
            if "step" in line:
                yield line["epoch"], line["step"], line["samples"]
