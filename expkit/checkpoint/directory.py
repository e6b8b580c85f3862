"""One checkpoint: a directory that is written whole or not at all, and read only when whole."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from expkit.checkpoint.manifest import MANIFEST_FILE, DamageError, FileEntry, Manifest
from expkit.checkpoint.tensors import Part, decode
from expkit.core.store import CheckpointInfo
from expkit.run.atomic import sync_directory, temporary_sibling, write_durably

log = logging.getLogger(__name__)

_MANIFEST_LIMIT_BYTES = 4 << 20  # for 20,000 ranks; read as JSON it takes 25 times as much
REPLACED = ".replaced"
DAMAGED = ".damaged"


def write(
    path: Path,
    parts: Sequence[Part],
    entries: Callable[[], tuple[FileEntry, ...]],
    info: CheckpointInfo,
    origin: Mapping[str, Any],
) -> None:
    """Make the checkpoint directory ``path``; one that is there already is replaced.

    The one that is replaced stays at ``aside(path)``, for the caller to discard.

    Args:
        path: the directory to be.
        parts: its files but the manifest.
        entries: gives their lines of the manifest; asked last, so that checksums may be computed
            while the disk is waited for.
        info: what the manifest says besides.
        origin: what it says of where the state comes from.

    Raises:
        OSError: it could not be made; what was there is as it was.
    """
    temporary = temporary_sibling(path)
    temporary.mkdir()
    try:
        for part in parts:
            write_durably(temporary / part.name, part.chunks)
        manifest = Manifest(info.step, info.epoch, info.metrics, info.score, entries(), origin)
        write_durably(temporary / MANIFEST_FILE, [manifest.to_bytes()])
        sync_directory(temporary)
        _put_in_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(temporary: Path, path: Path) -> None:
    """Rename; an older checkpoint steps aside under a name that is searched too."""
    replaces = os.path.lexists(path)
    if replaces:
        path.rename(aside(path))
    try:
        temporary.rename(path)
        sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            path.rename(temporary)  # in place, but not for certain: it does not count
        if replaces:
            aside(path).rename(path)
        raise


def aside(path: Path) -> Path:
    """Where the checkpoint that ``path`` replaces is kept until the new one is in place."""
    return path.with_name(path.name + REPLACED)


def settle(path: Path) -> Path:
    """Finish what a killed writer began: what it replaced goes, or comes back if nothing came.

    Returns:
        Where the checkpoint of this name is now.
    """
    if not path.name.endswith(REPLACED):
        return path
    successor = path.with_name(path.name.removesuffix(REPLACED))
    if os.path.lexists(successor):
        discard(path)
    else:
        path.rename(successor)
    return successor


def discard(path: Path) -> None:
    """Remove a checkpoint; at no moment is there half of one. Links are removed, not followed.

    Raises:
        OSError: it could not even be renamed; it is as it was.
    """
    doomed = temporary_sibling(path)
    path.rename(doomed)
    try:
        if doomed.is_dir() and not doomed.is_symlink():
            shutil.rmtree(doomed)
        else:
            doomed.unlink()
    except OSError as error:
        log.warning("%s does not count any more, but could not be removed: %s", doomed, error)


def set_aside(path: Path) -> Path:
    """Rename what may hold a checkpoint, for people to look at: it is not searched any more.

    Returns:
        Where it is now: ``step-00000135.damaged``, numbered where that is taken.

    Raises:
        OSError: it could not be renamed; it is as it was.
    """
    place, numbers = path.with_name(path.name + DAMAGED), itertools.count(2)
    while os.path.lexists(place):
        place = path.with_name(f"{path.name}{DAMAGED}-{next(numbers)}")
    path.rename(place)
    return place


def read_manifest(path: Path) -> Manifest:
    """What a checkpoint says of itself; its files were not looked at.

    Raises:
        DamageError: it is not a checkpoint, or the manifest is not as it was written.
    """
    with _opened(path) as directory:
        return Manifest.from_bytes(_read(directory, MANIFEST_FILE, _MANIFEST_LIMIT_BYTES))


def verify(path: Path) -> Manifest:
    """Read all files once and compare them with the manifest.

    Raises:
        DamageError: something is missing, cannot be read, or is not as it was written.
    """
    manifest = read_manifest(path)
    for _ in _parts(path, manifest):
        pass
    return manifest


def read(path: Path) -> tuple[dict[str, Any], Manifest]:
    """The state tree of a checkpoint; nothing is parsed before everything is verified.

    Raises:
        DamageError: as `verify`, or the files hold no state tree.
    """
    manifest = read_manifest(path)
    state = decode(dict(_parts(path, manifest)))
    stands_at = _step_of(state)
    if stands_at not in (None, manifest.step):
        raise DamageError(f"its state is of step {stands_at}, its manifest of step {manifest.step}")
    return state, manifest


def _step_of(state: dict[str, Any]) -> Any:
    """The step that a state tree is of; None where it does not say."""
    found: Any = state
    for key in ("trainer", "progress", "step"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _parts(path: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    with _opened(path) as directory:
        for entry in manifest.files:
            content = _read(directory, entry.name, entry.size)
            entry.check(content)
            yield entry.name, content


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a directory that is no link."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        what = "it is a link" if path.is_symlink() else error.strerror
        raise DamageError(f"{what}") from error
    try:
        yield directory
    finally:
        os.close(directory)


def read_file(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Raises:
        DamageError: there is no such file.
    """
    return _read(None, str(path), limit)


def _read(directory: int | None, name: str, limit: int) -> bytes:
    """What could lead elsewhere, block or never end is refused unread."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamageError(f"{name} is not a regular file")
            if status.st_size > limit:
                raise DamageError(f"{name} has {status.st_size} bytes, more than {limit}")
            with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
                return file.readall()
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise DamageError(f"{name} is missing") from error
    except OSError as error:
        what = "is a link" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
        raise DamageError(f"{name} {what}") from error
