"""Files that are either whole or not there, whatever happens while they are written."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

_SMALL_BYTES = 1 << 20
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` by ``data``: at any moment, the old file is there or the new one, whole.

    Args:
        path: the file; its directory exists. A link at this place is replaced, never followed.
        data: the content.
        mode: permissions, less the umask.

    Raises:
        OSError: it could not be written; the old file is as it was and nothing else is left behind.
    """
    temporary = temporary_sibling(path)
    try:
        write_durably(temporary, [data], mode=mode)
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_durably(path: Path, chunks: Sequence[bytes | memoryview], *, mode: int = 0o644) -> None:
    """Write a new file from its chunks and wait until it is on the disk.

    Raises:
        OSError: with the path in ``filename``; what was written so far stays.
    """
    if sum(len(chunk) for chunk in chunks) <= _SMALL_BYTES:
        chunks = [b"".join(chunks)]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        # A failed fsync is final: the kernel drops the dirty pages, and a second call succeeds.
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory (files made, renamed, removed) survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a directory
            error.filename = str(path)
            raise
    finally:
        os.close(descriptor)


def temporary_sibling(path: Path) -> Path:
    """An unused hidden name beside ``path``, so on the same file system: renaming is atomic."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")


def remove_leftovers(*directories: Path) -> None:
    """Remove what killed writers left under temporary names; links are not followed.

    Only the one process that writes there may call this, and not while it writes. What cannot be
    removed is told: it is in nobody's way.

    Args:
        directories: those that do not exist are passed over.
    """
    for path in [path for each in directories if each.exists() for path in each.iterdir()]:
        if not _TEMPORARY.fullmatch(path.name):
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            log.warning("%s, which a killed run has left, cannot be removed: %s", path, error)
