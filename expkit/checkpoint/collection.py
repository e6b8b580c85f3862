"""The checkpoints below one directory, as the one process changes them that may."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from expkit.checkpoint import directory, search
from expkit.checkpoint.manifest import DamageError, FileEntry
from expkit.checkpoint.pointers import Pointers
from expkit.checkpoint.retention import Retention
from expkit.checkpoint.tensors import Part
from expkit.core.store import CheckpointInfo
from expkit.run.atomic import remove_leftovers, sync_directory

log = logging.getLogger(__name__)


class Collection:
    """Adds checkpoints, lets those go that do not stay, and keeps the pointers right.

    Args:
        root: made for the first checkpoint.
        retention: which stay.

    Attributes:
        pointers: ``last.json`` and ``best.json``.
    """

    def __init__(self, root: Path, retention: Retention) -> None:
        self.pointers = Pointers(root)
        self._root = root
        self._retention = retention
        # Where the run directory was removed since, it must not quietly come back.
        self._needs_parents = not root.parent.exists()
        self._kept: dict[int, CheckpointInfo] | None = None  # by step; None until the first one

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self._root / search.name_of(step)

    def add(
        self,
        parts: Sequence[Part],
        entries: Callable[[], tuple[FileEntry, ...]],
        info: CheckpointInfo,
        origin: Mapping[str, Any],
    ) -> None:
        """Write a checkpoint, then let go what does not stay; see `directory.write`.

        Raises:
            OSError: it could not be written; what was there is as it was.
        """
        kept = self._take_over() if self._kept is None else self._kept
        directory.write(self.path(info.step), parts, entries, info, origin)
        self._kept = kept | {info.step: info}
        staying = self._retention.staying(_up_to(info.step, self._kept.values()))
        self._point_into(staying)
        self._retire(self._kept, info.step, staying)

    def go_back(self, step: int) -> None:
        """Clear the checkpoints after ``step`` away for certain.

        Whole ones are removed. Others are set aside: what cannot be read now may be all that is
        left of the run.

        Raises:
            OSError: it could not be done; none is half there.
        """
        later = [path for path in search.candidates(self._root) if search.step_of(path) > step]
        if not later:
            return
        infos = []
        for path in search.candidates(self._root):
            if path not in later:
                with suppress(DamageError):
                    infos.append(search.describe(path))
        self._kept = None
        self._point_into(self._retention.staying(infos))
        _clear_away(later, step)
        sync_directory(self._root)

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
        self._dismiss_damaged_best(kept)
        return kept

    def _dismiss_damaged_best(self, kept: dict[int, CheckpointInfo]) -> None:
        """See that no place among the best is held by files that are not as they were written."""
        keep_best = self._retention.keep_best
        places = 1 if keep_best is None else keep_best
        for info in self._retention.ranked(kept.values()):
            if places == 0:
                return
            try:
                search.verify(self.path(info.step))
                places -= 1
            except DamageError as error:
                log.warning("checkpoint %s is not among the best any more: %s", info.path, error)
                del kept[info.step]

    def _point_into(self, staying: Sequence[CheckpointInfo]) -> None:
        """Let the pointers name the last and the best of those that stay, the newest first."""
        best = self._retention.ranked(staying)
        self.pointers.set("last", staying[0] if staying else None)
        self.pointers.set("best", best[0] if best else None)

    def _retire(
        self, kept: dict[int, CheckpointInfo], step: int, staying: Iterable[CheckpointInfo]
    ) -> None:
        """Remove what the checkpoint of ``step`` replaced, and all that do not stay."""
        replaced = directory.aside(self.path(step))
        if os.path.lexists(replaced):
            directory.discard(replaced)
        going = sorted(kept.keys() - {info.step for info in staying})
        there = {old: self.path(old) for old in going if os.path.lexists(self.path(old))}
        _clear_away([path for old, path in there.items() if old > step], step)
        for old in going:
            if old in there and old < step:
                directory.discard(there[old])
            del kept[old]


def _up_to(step: int, infos: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
    return [info for info in infos if info.step <= step]


def _clear_away(later: Iterable[Path], step: int) -> None:
    """Remove the whole ones of the checkpoints after ``step``, and set the others aside."""
    is_told = False
    for path in later:
        try:
            search.verify(path)
        except DamageError as error:
            place = directory.set_aside(path)
            log.warning(
                "the run went back to step %d: its later checkpoint %s is not whole (%s) and is "
                "set aside as %s",
                *(step, path, error, place.name),
            )
            continue
        if not is_told:
            is_told = True
            log.warning("the run went back to step %d: removing its later checkpoints", step)
        directory.discard(path)
