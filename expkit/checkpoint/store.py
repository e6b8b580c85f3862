"""The checkpoints of a run on disk: saved behind the loop's back, verified when read."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from expkit.checkpoint import directory, search
from expkit.checkpoint.manifest import DamageError, FileEntry
from expkit.checkpoint.tensors import Part, encode
from expkit.checkpoint.writer import BackgroundWriter, InlineWriter, Worker, Writer
from expkit.core.errors import CheckpointError, ConfigError, Problem
from expkit.core.state import check_weights
from expkit.core.store import CheckpointInfo, Store
from expkit.run.atomic import remove_leftovers, write_atomically

log = logging.getLogger(__name__)

_POINTER_LIMIT_BYTES = 4096

Where = Literal["last", "best"]
T = TypeVar("T")


class CheckpointStore(Store):
    """A directory ``step-00000100`` for each checkpoint, and ``last.json`` and ``best.json``.

    A checkpoint counts when its manifest and all its files are as they were written; the two JSON
    files name one for people, and what counts is found by looking. One process at a time may save
    below ``root``; any may read.

    A save at a step that was saved before replaces that checkpoint, score included. A save at a
    step earlier than others means that the run went back and goes another way: the later ones are
    then removed. Damaged checkpoints are passed over and never removed.

    Args:
        root: made at the first save; reading changes nothing on the disk.
        keep_last: how many of the newest stay; None = all.
        keep_best: how many with the greatest scores stay besides, of equals the earlier; None = all
            that have a score; 0 = none, and there is no best.
        background: whether a thread writes while training goes on.

    Raises:
        ConfigError: a number of checkpoints that makes no sense.
    """

    def __init__(
        self,
        root: Path | str,
        keep_last: int | None = 1,
        keep_best: int | None = 1,
        background: bool = True,
    ) -> None:
        _check_count("keep_last", keep_last, 1)
        _check_count("keep_best", keep_best, 0)
        self._root = Path(root)
        # Where the run directory was removed since, it must not quietly come back.
        self._needs_parents = not self._root.parent.exists()
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._writer: Writer = BackgroundWriter() if background else InlineWriter()
        self._hasher = Worker("checkpoint-hasher")
        self._kept: dict[int, CheckpointInfo] | None = None  # by step; None until the first save
        self._pointers: dict[Where, str | None] = {}

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
        info = CheckpointInfo(self._path(step), step, epoch, numbers, ranked)
        entries = self._hasher.submit(lambda: tuple(part.entry() for part in parts))

        def write() -> None:
            check_weights(state.get("model", {}), step)
            self._write(parts, entries, info)

        self._writer.submit(write)

    def _write(
        self, parts: Sequence[Part], entries: Future[tuple[FileEntry, ...]], info: CheckpointInfo
    ) -> None:
        path = self._path(info.step)
        try:
            kept = self._take_over() if self._kept is None else self._kept
            directory.write(path, parts, entries.result, info)
            self._kept = kept | {info.step: info}
            staying = self._staying(self._kept, info.step)
            best = self._ranked(staying)
            self._point("last", info)
            self._point("best", best[0] if best else None)
            self._retire(self._kept, info.step, staying)
        except OSError as error:
            raise CheckpointError(_unwritten(path, parts, error)) from error

    def _take_over(self) -> dict[int, CheckpointInfo]:
        """Clear away what a killed writer left, and list what is there."""
        if self._needs_parents:
            self._root.parent.mkdir(parents=True, exist_ok=True)
        self._root.mkdir(exist_ok=True)
        remove_leftovers(self._root)
        kept = {}
        for path in search.candidates(self._root):
            with suppress(DamageError):
                info = search.describe(directory.settle(path))
                kept[info.step] = info
        return kept

    def _staying(self, kept: Mapping[int, CheckpointInfo], step: int) -> list[CheckpointInfo]:
        """The newest and the best up to ``step``, the one just written."""
        infos = sorted(
            (info for info in kept.values() if info.step <= step), key=lambda info: -info.step
        )
        newest = {info.step for info in infos[: self._keep_last]}
        best = {info.step for info in self._ranked(infos)[: self._keep_best]}
        return [info for info in infos if info.step in newest | best]

    def _ranked(self, infos: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
        """Those with a score, the best first; none where no best is kept."""
        if self._keep_best == 0:
            return []
        scored = [(-info.score, info.step, info) for info in infos if info.score is not None]
        return [info for *_, info in sorted(scored, key=lambda entry: entry[:2])]

    def _retire(
        self, kept: dict[int, CheckpointInfo], step: int, staying: Iterable[CheckpointInfo]
    ) -> None:
        """Remove what the checkpoint of ``step`` replaced, and all that do not stay."""
        replaced = directory.aside(self._path(step))
        if os.path.lexists(replaced):
            directory.discard(replaced)
        going = sorted(kept.keys() - {info.step for info in staying})
        if going and going[-1] > step:
            log.warning("the run went back to step %d: removing its later checkpoints", step)
        for old in going:
            if os.path.lexists(self._path(old)):
                directory.discard(self._path(old))
            del kept[old]

    def _path(self, step: int) -> Path:
        return self._root / search.name_of(step)

    def poll(self) -> None:
        """See `Store.poll`.

        Raises:
            CheckpointError: the last save has failed; older checkpoints are as they were.
        """
        self._writer.poll()

    def go_back(self, step: int) -> None:
        """See `Store.go_back`; damaged checkpoints stay where they are."""
        self._writer.wait()
        if not search.candidates(self._root):
            return
        self._kept = self._take_over()
        staying = [info for info in self._kept.values() if info.step <= step]
        if len(staying) == len(self._kept):
            return
        newest = max(staying, key=lambda info: info.step, default=None)
        best = self._ranked(staying)
        self._point("last", newest)
        self._point("best", best[0] if best else None)
        self._retire(self._kept, step, staying)

    # -- the two pointers --------------------------------------------------------------------------

    def _point(self, which: Where, info: CheckpointInfo | None) -> None:
        """Write ``last.json`` or ``best.json`` where it changes."""
        name = None if info is None else search.name_of(info.step)
        if self._pointers.get(which, "") == name:
            return
        file = self._root / f"{which}.json"
        if info is None:
            file.unlink(missing_ok=True)
        else:
            content = {"checkpoint": name, "step": info.step, "score": info.score}
            write_atomically(file, json.dumps(content).encode() + b"\n")
        self._pointers[which] = name

    def _check_pointer(self, which: Where, name: str) -> None:
        """Say so where a pointer names another checkpoint than the one that was found."""
        file = self._root / f"{which}.json"
        if not os.path.lexists(file):
            return
        try:
            named = json.loads(directory.read_file(file, _POINTER_LIMIT_BYTES))["checkpoint"]
        except (DamageError, LookupError, TypeError, ValueError, RecursionError):
            named = None
        if named != name:
            log.warning("%s does not name %s, which was found by looking: ignored", file, name)

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
            CheckpointError: there is none, or the one that was asked for is damaged.
        """
        if where != "last" and where != "best":
            self.wait()
            return search.load_named(where)
        found = self._find(where, search.load)
        if found is None:
            what = "no checkpoint" if where == "last" else "no checkpoint with a score"
            if where == "best" and self._keep_best == 0:
                what = (
                    "no best checkpoint, for checkpoint.keep_best=0 (try: checkpoint.keep_best=1)"
                )
            raise CheckpointError(f"{what} in {self._root}")
        self._check_pointer(where, search.name_of(found[1].step))
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
        return [info.path for info in self._ranked(infos) if info.path is not None]

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


def _check_count(name: str, value: int | None, least: int) -> None:
    if value is None or (type(value) is int and value >= least):
        return
    message = f"{value!r} is no number of checkpoints; allowed: {least} or more, or null for all"
    if name == "keep_last":
        message += " (checkpoint=none keeps none on disk)"
    raise ConfigError([Problem(f"checkpoint.{name}", message, f"checkpoint.{name}=1")])


def _unwritten(path: Path, parts: Sequence[Part], error: OSError) -> str:
    """Why a checkpoint could not be written, and what would help."""
    place = next(parent for parent in path.absolute().parents if os.access(parent, os.F_OK))
    system = os.statvfs(place)
    code = errno.errorcode.get(error.errno or 0, "OSError")
    return (
        f"cannot write checkpoint {path}: {error.strerror} ({code}, at {error.filename}); "
        f"it needs {sum(part.size for part in parts)} bytes and {len(parts) + 2} files, "
        f"free are {system.f_bavail * system.f_frsize} bytes and {system.f_favail} files; "
        "older checkpoints are as they were. Make room, keep fewer (checkpoint.keep_best=0), "
        "or write elsewhere (output_dir=/another/disk)"
    )
