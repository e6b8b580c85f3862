"""run.json: how a run stands and where it comes from. Always whole, always strict JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expkit.core.errors import RunDirectoryError
from expkit.run.atomic import write_atomically
from expkit.run.regular import read_regular
from expkit.run.strict_json import encode_document

STATUS_FILE = "run.json"

_LIMIT_BYTES = 16 << 20
_KINDS: dict[str, tuple[type, ...]] = {
    "status": (str,),
    "started": (str,),
    "resumed": (list,),
    "seconds": (int, float),
    "result": (dict, type(None)),
}
"""What is read again; of these only the status is there from the beginning."""


class StatusFile:
    """The one JSON object of ``run.json``, replaced atomically; threads may take turns.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / STATUS_FILE
        self._fields: dict[str, Any] = {}
        self._lock = threading.Lock()

    def claim(self, fields: Mapping[str, Any]) -> None:
        """Make the file, which one process only can do.

        Raises:
            FileExistsError: another was there first.
            OSError: it cannot be written.
        """
        self._fields = dict(fields)
        with self.path.open("xb") as file:
            file.write(encode_document(self._fields))

    def read(self) -> dict[str, Any]:
        """What the file says; later updates add to that.

        Raises:
            RunDirectoryError: it is absent or damaged.
        """
        with self._lock:
            self._fields = self._load()
            return dict(self._fields)

    def update(self, fields: Mapping[str, Any]) -> None:
        """Set fields, keep the others.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        with self._lock:
            self._fields |= fields
            try:
                write_atomically(self.path, encode_document(self._fields))
            except OSError as error:
                raise RunDirectoryError(f"cannot write {self.path}: {error.strerror}") from error

    def _load(self) -> dict[str, Any]:
        try:
            fields = json.loads(read_regular(self.path, _LIMIT_BYTES))
        except OSError as error:
            message = f"{self.path.parent} is not a run directory: {STATUS_FILE}: {error.strerror}"
            raise RunDirectoryError(message) from error
        except (ValueError, RecursionError) as error:
            raise RunDirectoryError(f"{self.path} is damaged: {error}") from error
        if not isinstance(fields, dict):
            raise RunDirectoryError(f"{self.path} is damaged: it holds no JSON object")
        for key, kinds in _KINDS.items():
            if key in fields and not isinstance(fields[key], kinds):
                raise RunDirectoryError(f"{self.path} is damaged: {key} is {fields[key]!r:.60}")
        if "status" not in fields:
            raise RunDirectoryError(f"{self.path} is damaged: it holds no status")
        return fields
