"""The checkpoints of a run on disk: saved behind the loop's back, verified when read."""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from expkit.checkpoint import search
from expkit.checkpoint.collection import Collection
from expkit.checkpoint.manifest import DamageError, FileEntry, origin_of
from expkit.checkpoint.pointers import Where
from expkit.checkpoint.retention import Retention
from expkit.checkpoint.tensors import Part, encode
from expkit.checkpoint.writer import BackgroundWriter, InlineWriter, Worker, Writer
from expkit.core.errors import CheckpointError, ConfigError, NoCheckpointError, Problem
from expkit.core.state import check_weights
from expkit.core.store import CheckpointInfo, Store

log = logging.getLogger(__name__)

OnError = Literal["raise", "warn"]
T = TypeVar("T")


class CheckpointStore(Store):
    """A directory ``step-00000100`` for each checkpoint, and ``last.json`` and ``best.json``.

    A checkpoint counts when its manifest and all its files are as they were written; the two JSON
    files name one for people, and what counts is found by looking. One process at a time may save
    below ``root``; any may read.

    A save at a step that was saved before replaces that checkpoint, score included. A save at a
    step earlier than others means that the run went back and goes another way: the later ones are
    then removed. Damaged checkpoints are passed over; of the later ones, those that cannot be read
    are not removed but renamed (``step-00000135.damaged``), and what has no whole manifest stays.

    Args:
        root: made at the first save; reading changes nothing on the disk.
        keep_last: how many of the newest stay; None = all. With one alone, which may be the best as
            well, a single damaged file would cost the run.
        keep_best: how many with the greatest scores stay besides, of equals the earlier; None = all
            that have a score; 0 = none, and there is no best.
        background: whether a thread writes while training goes on.
        on_error: whether a save that the disk did not take is an error (``raise``), or is only told
            (``warn``), once more when the store is closed. The next save tries again in any case.

    Raises:
        ConfigError: a number of checkpoints that makes no sense, or another ``on_error``.
    """

    def __init__(
        self,
        root: Path | str,
        keep_last: int | None = 2,
        keep_best: int | None = 1,
        background: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        self._retention = Retention(keep_last, keep_best)
        if on_error not in get_args(OnError):
            message = f"is {on_error!r}; allowed: {', '.join(get_args(OnError))}"
            hint = "checkpoint.on_error=raise"
            raise ConfigError([Problem("checkpoint.on_error", message, hint)])
        self._on_error = on_error
        self._root = Path(root)
        self._collection = Collection(self._root, self._retention)
        self.needs_copies = background
        self._writer: Writer = BackgroundWriter() if background else InlineWriter()
        self._hasher = Worker("checkpoint-hasher", threads=2)
        self._lost: Path | None = None  # what the last save was to be, where it failed

    # -- saving ------------------------------------------------------------------------------------

    def save(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        epoch: int,
        metrics: Mapping[str, float],
        score: float | None,
    ) -> None:
        """Keep a state tree of host copies; the store owns its arrays until they are written.

        Waits for the save before this one. When `wait` returns, this one is on the disk and the
        older ones that do not stay are gone.

        Args:
            state: nested dicts and lists of NumPy arrays and JSON values.
            step: optimizer steps made.
            epoch: 0-based.
            metrics: kept with it.
            score: larger is better; None and NaN cannot be ranked.

        Raises:
            CheckpointError: the state holds what a checkpoint cannot hold, or the save before this
                one failed.
            NonFiniteLossError: the weights hold NaN; raised here or, from the background, by `poll`
                or `wait`.
        """
        self._writer.wait()
        parts = encode(state)
        numbers = {name: float(value) for name, value in metrics.items()}
        ranked = None if score is None or math.isnan(score) else float(score)
        info = CheckpointInfo(self._collection.path(step), step, epoch, numbers, ranked)
        origin = origin_of(state)

        def check() -> None:
            check_weights(state.get("model", {}), step)

        def write() -> None:
            self._write(parts, self._checksums(parts, check), info, origin)

        self._writer.submit(write)

    def _checksums(
        self, parts: Sequence[Part], check: Callable[[], None]
    ) -> Callable[[], tuple[FileEntry, ...]]:
        """Gives the lines of the manifest, without which nothing counts, once the check has passed.

        Who waits for the write wants both meanwhile; training that goes on wants the processor,
        and to hear at once of what the check finds.
        """
        if self.needs_copies:
            check()
            return lambda: tuple(part.entry() for part in parts)
        checked = self._hasher.submit(check)
        pending = [self._hasher.submit(part.entry) for part in parts]

        def entries() -> tuple[FileEntry, ...]:
            checked.result()
            return tuple(each.result() for each in pending)

        return entries

    def _write(
        self,
        parts: Sequence[Part],
        entries: Callable[[], tuple[FileEntry, ...]],
        info: CheckpointInfo,
        origin: Mapping[str, Any],
    ) -> None:
        path = self._collection.path(info.step)
        try:
            self._collection.add(parts, entries, info, origin)
        except OSError as error:
            message = _unwritten(path, parts, error)
            if self._on_error == "raise":
                raise CheckpointError(message) from error
            self._lost = path
            log.warning("%s. Training goes on (checkpoint.on_error=warn)", message)
        else:
            self._lost = None

    def poll(self) -> None:
        """See `Store.poll`.

        Raises:
            CheckpointError: the last save has failed; older checkpoints are as they were.
        """
        self._writer.poll()

    def go_back(self, step: int) -> None:
        """See `Store.go_back`. Whole ones are gone from the disk for certain, others set aside.

        Raises:
            CheckpointError: the later ones cannot be removed.
        """
        self._writer.wait()
        try:
            self._collection.go_back(step)
        except OSError as error:
            raise CheckpointError(
                f"cannot remove the checkpoints after step {step} from {self._root}: "
                f"{error.strerror}; they must go, for the run goes another way from there"
            ) from error

    # -- reading -----------------------------------------------------------------------------------

    def last(self) -> CheckpointInfo | None:
        """The newest valid checkpoint; None where there is no checkpoint at all.

        Raises:
            CheckpointError: there are some and all are damaged, or the save under way failed.
        """
        return self._find("last", search.verify)

    def best(self) -> CheckpointInfo | None:
        """The valid checkpoint with the greatest score; None where none has one.

        Raises:
            CheckpointError: there are some and all are damaged, or the save under way failed.
        """
        return self._find("best", search.verify)

    def load(self, where: Where | Path) -> tuple[dict[str, Any], CheckpointInfo]:
        """A verified state tree.

        Args:
            where: ``last`` and ``best`` pass over damaged checkpoints with a warning for each; a
                path means that checkpoint and no other, and may lie outside of ``root``.

        Raises:
            NoCheckpointError: there is no last one, or no best one.
            CheckpointError: the one that was asked for is damaged, or all are.
        """
        if where != "last" and where != "best":
            self.wait()
            return search.load_named(where)
        found = self._find(where, search.load)
        if found is None:
            what = "no checkpoint" if where == "last" else "no checkpoint with a score"
            if where == "best" and self._retention.keep_best == 0:
                what = (
                    "no best checkpoint, for checkpoint.keep_best=0 (try: checkpoint.keep_best=1)"
                )
            raise NoCheckpointError(f"{what} in {self._root}")
        self._collection.pointers.check(where, found[1])
        return found

    def _find(self, where: Where, read: Callable[[Path], T]) -> T | None:
        self.wait()
        paths = search.candidates(self._root)
        return search.first_valid(paths if where == "last" else self._by_score(paths), read)

    def _by_score(self, paths: Iterable[Path]) -> list[Path]:
        infos = []
        for path in paths:
            try:
                infos.append(search.describe(path))
            except DamageError as error:
                log.warning("skipped checkpoint %s: %s", path, error)
        return [info.path for info in self._retention.ranked(infos) if info.path is not None]

    # -- life --------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the last save is on the disk.

        Raises:
            CheckpointError: it failed; older checkpoints are as they were.
        """
        self._writer.wait()

    def close(self) -> None:
        """Wait and release the threads; safe to call twice."""
        try:
            self._writer.close()
        finally:
            self._hasher.close()
            lost, self._lost = self._lost, None
            if lost is not None:
                log.warning("the last save has failed: there is no checkpoint %s", lost)


def _unwritten(path: Path, parts: Sequence[Part], error: OSError) -> str:
    """Why a checkpoint could not be written, and what would help."""
    place = next(parent for parent in path.absolute().parents if os.access(parent, os.F_OK))
    system = os.statvfs(place)
    code = errno.errorcode.get(error.errno or 0, "OSError")
    return (
        f"cannot write checkpoint {path}: {error.strerror} ({code}, at {error.filename}); "
        f"it needs {sum(part.size for part in parts)} bytes and {len(parts) + 2} files, "
        f"free are {system.f_bavail * system.f_frsize} bytes and {system.f_favail} files; "
        "older checkpoints are as they were. Make room, keep fewer (checkpoint.keep_last=1), "
        "or write elsewhere (output_dir=/another/disk)"
    )
