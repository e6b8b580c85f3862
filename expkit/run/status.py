"""run.json: how a run stands and where it comes from. Always whole, always strict JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expkit.core.errors import RunDirectoryError
from expkit.run.atomic import write_atomically
from expkit.run.strict_json import encode_document

STATUS_FILE = "run.json"


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
            fields = json.loads(self.path.read_bytes())
        except OSError as error:
            message = f"{self.path.parent} is not a run directory: {STATUS_FILE}: {error.strerror}"
            raise RunDirectoryError(message) from error
        except ValueError as error:
            raise RunDirectoryError(f"{self.path} is damaged: {error}") from error
        if not isinstance(fields, dict):
            raise RunDirectoryError(f"{self.path} is damaged: it holds no JSON object")
        return fields
