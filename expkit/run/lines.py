"""Text files of one record a line, which only grow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from expkit.run.atomic import write_atomically
from expkit.run.regular import read_regular


class LineFile:
    """Appends whole lines, each by one system call, so that lines of two writers never mix.

    The file is made by the first line. A link in its place is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._torn = False

    def append(self, line: bytes) -> None:
        """Append ``line``, which ends with a newline.

        Raises:
            OSError: it could not be written; the next line starts afresh all the same.
        """
        descriptor = self._open() if self._descriptor is None else self._descriptor
        rest = b"\n" + line if self._torn else line
        self._torn = True
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        self._torn = False

    def close(self) -> None:
        """Release the file; a later `append` opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = self._descriptor = os.open(self.path, flags, 0o644)
        size = os.fstat(descriptor).st_size
        # A writer that was killed may have left half a line.
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return descriptor


def keep_lines(path: Path, wanted: Callable[[bytes], bool]) -> None:
    """Keep those lines of a file that are whole and wanted, atomically; absent stays absent.

    Raises:
        OSError: it cannot be read or written, or is no regular file; it is as it was.
    """
    if not path.exists():
        return
    lines = read_regular(path).splitlines(keepends=True)
    kept = [line for line in lines if line.endswith(b"\n") and wanted(line)]
    if len(kept) < len(lines):
        write_atomically(path, b"".join(kept))
