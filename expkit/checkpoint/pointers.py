"""``last.json`` and ``best.json``: they name a checkpoint each, for people and scripts."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Literal

from expkit.checkpoint import directory, search
from expkit.checkpoint.manifest import DamageError
from expkit.core.store import CheckpointInfo
from expkit.run.atomic import write_atomically

log = logging.getLogger(__name__)

_LIMIT_BYTES = 4096

Where = Literal["last", "best"]


class Pointers:
    """The two files below ``root``. What counts is found by looking; they decide nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[Where, str | None] = {}

    def set(self, which: Where, info: CheckpointInfo | None) -> None:
        """Write a file where what it says changes; None removes it.

        One that cannot be written is told, and tried again the next time.
        """
        file = self._file(which)
        if info is None:
            text = None
        else:
            name = search.name_of(info.step)
            text = json.dumps({"checkpoint": name, "step": info.step, "score": info.score}) + "\n"
        if self._written.get(which, "") == text:
            return
        try:
            if text is None:
                file.unlink(missing_ok=True)
            else:
                write_atomically(file, text.encode())
        except OSError as error:
            reason = error.strerror
            log.warning("%s is out of date, for it cannot be written: %s", file, reason)
        else:
            self._written[which] = text

    def check(self, which: Where, info: CheckpointInfo) -> None:
        """Say so where a file names another checkpoint than the one that was found."""
        file, name = self._file(which), search.name_of(info.step)
        if not os.path.lexists(file):
            return
        try:
            named = json.loads(directory.read_file(file, _LIMIT_BYTES))["checkpoint"]
        except (DamageError, LookupError, TypeError, ValueError, RecursionError):
            named = None
        if named != name:
            log.warning("%s does not name %s, which was found by looking: ignored", file, name)

    def _file(self, which: Where) -> Path:
        return self._root / f"{which}.json"
