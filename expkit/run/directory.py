"""The directory of a run: made once, owned by one run, and telling how that run stands."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from expkit.core.errors import RunDirectoryError
from expkit.run.atomic import remove_leftovers, write_atomically
from expkit.run.board import TENSORBOARD_DIRECTORY
from expkit.run.clock import WallClock
from expkit.run.csv import CSV_FILE
from expkit.run.logs import LOG_FILE, RANK_LOGS_DIRECTORY
from expkit.run.names import check_name, to_name
from expkit.run.provenance import ProvenanceReader
from expkit.run.records import METRICS_FILE
from expkit.run.regular import check_entries
from expkit.run.status import STATUS_FILE, StatusFile

CONFIG_FILE = "config.yaml"
OVERRIDES_FILE = "overrides.yaml"
CHECKPOINTS_DIRECTORY = "checkpoints"

_FILES = (CONFIG_FILE, OVERRIDES_FILE, STATUS_FILE, METRICS_FILE, CSV_FILE, LOG_FILE)
_DIRECTORIES = (CHECKPOINTS_DIRECTORY, TENSORBOARD_DIRECTORY, RANK_LOGS_DIRECTORY)

log = logging.getLogger(__name__)


class RunDirectory:
    """Paths, config and status of one run. Got by `create`, `at`, `job` or `open`, not directly.

    The ``status`` in ``run.json`` is ``created``, ``running``, ``completed``, ``failed`` or
    ``interrupted``.

    Attributes:
        path: the directory, absolute.
        config_file: the resolved config.
        overrides_file: the overrides as they were given.
        status_file: status, provenance and result.
        metrics_file: the records of `expkit.run.records`.
        checkpoints: where checkpoints go.
        tensorboard: what ``tensorboard --logdir`` reads.
        logs: the logs of ranks other than 0.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / CONFIG_FILE
        self.overrides_file = path / OVERRIDES_FILE
        self.status_file = path / STATUS_FILE
        self.metrics_file = path / METRICS_FILE
        self.checkpoints = path / CHECKPOINTS_DIRECTORY
        self.tensorboard = path / TENSORBOARD_DIRECTORY
        self.logs = path / RANK_LOGS_DIRECTORY
        self._status = StatusFile(path)
        self._clock, self._seconds_before = WallClock(), 0.0
        self._provenance: ProvenanceReader | None = None

    # -- making and finding --------------------------------------------------------------------

    @classmethod
    def create(cls, root: Path, name: str, *, now: datetime | None = None) -> RunDirectory:
        """Make ``<root>/2026-11-30/07-12-03-<name>``, or ``...-2``, ``...-3`` where that is taken.

        Args:
            root: the output directory; made where it is absent.
            name: name of the run.
            now: local time in place of the present one.

        Raises:
            RunDirectoryError: an illegal name, or a place that cannot be written.
        """
        return cls._claim(_make_unique(_dated(root, check_name(name), now)))

    @classmethod
    def create_sweep(cls, root: Path, name: str, *, now: datetime | None = None) -> Path:
        """Make a sweep's directory, ``<root>/2026-11-30/07-12-03-sweep-<name>``; see `create`."""
        return _make_unique(_dated(root, f"sweep-{check_name(name)}", now))

    @classmethod
    def job(cls, sweep: Path, number: int, name: str) -> RunDirectory:
        """Make the directory of a sweep's job, such as ``003-lr-0.1``.

        Args:
            sweep: what `create_sweep` gave.
            number: of the job in the sweep.
            name: any text, such as the job's overrides; what cannot be in a name becomes ``-``.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        return cls._claim(_make_unique(sweep.absolute() / f"{number:03d}-{to_name(name)}"))

    @classmethod
    def at(cls, path: Path) -> RunDirectory:
        """Make exactly this directory, or take it where it is empty.

        Raises:
            RunDirectoryError: there is something in it, or it cannot be written.
        """
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
            present = sorted(entry.name for entry in path.iterdir())
        except OSError as error:
            raise _refusal(path, error) from error
        if present:
            raise _not_empty(path, present)
        return cls._claim(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The directory of an earlier run.

        Raises:
            RunDirectoryError: it is none, or something in it leads out of it or is no file.
        """
        run = cls(path.resolve())
        check_entries(run.path, _FILES, _DIRECTORIES)
        run.info()
        return run

    @classmethod
    def _claim(cls, path: Path) -> RunDirectory:
        """Become the one owner of a new directory; shows that files can be written there too."""
        run = cls(path)
        try:
            run._status.claim({"status": "created", "created": run._clock.timestamp()})
        except FileExistsError as error:
            raise _not_empty(path, [STATUS_FILE]) from error
        except OSError as error:
            raise _refusal(path, error) from error
        return run

    # -- config and status ---------------------------------------------------------------------

    def write_config(self, resolved: str, overrides: Sequence[str]) -> None:
        """Keep the config.

        Args:
            resolved: the whole config as YAML, without interpolations.
            overrides: what the user gave, in order.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        lines = "".join(f"- {_yaml_string(override)}\n" for override in overrides) or "[]\n"
        try:
            for path, text in ((self.config_file, resolved), (self.overrides_file, lines)):
                write_atomically(path, text.encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write {path}: {error.strerror}") from error

    def start(
        self,
        *,
        argv: Sequence[str],
        task: str,
        driver: str,
        world_size: int,
        seed: int,
        name: str,
        tags: Sequence[str] = (),
    ) -> None:
        """Enter the status ``running``. A run that goes on keeps its first start and its seconds.

        Clears away what killed processes left; versions and git state follow from a thread.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        remove_leftovers(self.path, self.checkpoints)
        before, began = self.look_after(), self._clock.timestamp()
        self._status.update(
            {
                "status": "running",
                "name": name,
                "task": task,
                "driver": driver,
                "world_size": world_size,
                "seed": seed,
                "tags": list(tags),
                "argv": list(argv),
                "started": before.get("started", began),
                "resumed": [*before["resumed"], began] if "resumed" in before else [],
                "ended": None,
                "seconds": self._seconds_before,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "result": None,
                "reason": None,
                "error": None,
            }
        )
        self._provenance = ProvenanceReader(Path.cwd(), self._add_provenance)

    def look_after(self) -> dict[str, Any]:
        """Count the seconds from here on; returns what ``run.json`` says before."""
        before = self.info()
        self._clock, self._seconds_before = WallClock(), before.get("seconds", 0.0)
        return before

    def count_at_least(self, seconds: float) -> None:
        """Count those of a training that goes on: a part that was killed has kept none itself."""
        self._seconds_before = max(self._seconds_before, round(seconds, 3))

    def complete(self, result: Mapping[str, Any]) -> None:
        """Enter the status ``completed``.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        self._end(status="completed", result=result)

    def interrupt(self, reason: str, result: Mapping[str, Any] | None = None) -> None:
        """Enter the status ``interrupted``: stopped from outside, can go on."""
        self._end_badly(status="interrupted", reason=reason, result=result)

    def fail(self, error: BaseException, traceback_text: str) -> None:
        """Enter the status ``failed``."""
        described = {"type": type(error).__name__, "message": str(error)}
        self._end_badly(status="failed", error={**described, "traceback": traceback_text})

    def info(self) -> dict[str, Any]:
        """What ``run.json`` says.

        Raises:
            RunDirectoryError: it is absent or damaged.
        """
        return self._status.read()

    def _end(self, **fields: Any) -> None:
        if self._provenance is not None:
            self._provenance.wait()
        seconds = round(self._seconds_before + self._clock.elapsed(), 3)
        self._status.update({"ended": self._clock.timestamp(), "seconds": seconds, **fields})

    def _end_badly(self, **fields: Any) -> None:
        """A status that cannot be written must not hide why the run ends."""
        try:
            self._end(**fields)
        except RunDirectoryError as error:
            log.error("the status of the run is not kept: %s", error)

    def _add_provenance(self, found: Mapping[str, Any]) -> None:
        try:
            self._status.update(found)
        except RunDirectoryError as error:
            log.warning("versions and git state are not kept: %s", error)


def _dated(root: Path, name: str, now: datetime | None) -> Path:
    moment = now or datetime.now()
    return root.absolute() / f"{moment:%Y-%m-%d}" / f"{moment:%H-%M-%S}-{name}"


def _make_unique(wanted: Path) -> Path:
    """Make a directory that nobody else has made: mkdir succeeds for one process only."""
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        path = wanted
        for number in itertools.count(2):
            try:
                path.mkdir()
                break
            except FileExistsError:
                path = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise _refusal(wanted, error) from error
    return path


def _refusal(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"cannot make the run directory {path}: {error.filename or path}: {error.strerror}; "
        "choose another place with output_dir=..."
    )


def _not_empty(path: Path, present: Sequence[str]) -> RunDirectoryError:
    shown = ", ".join(present[:3]) + (", ..." if len(present) > 3 else "")
    return RunDirectoryError(
        f"run directory {path} is not empty (it holds {shown}); "
        f"go on with that run by resume={path}, or give another directory"
    )


def _yaml_string(text: str) -> str:
    """A double-quoted YAML scalar: a JSON string in which what cannot be printed is escaped too."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in quoted)
