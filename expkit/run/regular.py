"""Reading what should be a file, where a directory from elsewhere may hold anything by its name."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

from expkit.core.errors import RunDirectoryError


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """The content of a regular file; what would block or never end is refused unread.

    Args:
        path: the file; a link is followed.
        limit: the most bytes that it may have.

    Raises:
        OSError: it cannot be read, is something else, or is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if limit is not None and status.st_size > limit:
            reason = f"it has {status.st_size} bytes, more than {limit}"
            raise OSError(errno.EFBIG, reason, str(path))
        with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.readall()
    finally:
        os.close(descriptor)


def check_entries(run: Path, files: Collection[str], directories: Collection[str]) -> None:
    """See that a run directory from elsewhere makes us neither leave it nor wait for ever.

    Args:
        run: the run directory.
        files: names in it of what should be files; what is not there is passed over.
        directories: the same of directories.

    Raises:
        RunDirectoryError: a link leads out of it, or what should be a file is none.
    """
    for name in (*files, *directories):
        entry = run / name
        if entry.is_symlink() and not entry.resolve().is_relative_to(run):
            raise RunDirectoryError(f"{entry} is a link that leads out of the run directory")
        if name in files and entry.exists() and not entry.is_file():
            raise RunDirectoryError(f"{entry} is no regular file")
