"""The log of a run: a file for each rank, and rank 0 on the console."""

from __future__ import annotations

import errno
import logging
import re
import sys
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from expkit.core.errors import RunDirectoryError

LOG_FILE = "train.log"
RANK_LOGS_DIRECTORY = "logs"

IN_FILE_ONLY = {"in_file_only": True}
"""As ``extra`` of a record: it is not for the console."""

_MAX_LOG_BYTES = 32 << 20
_MAX_REMEMBERED = 1024
_SHOWN_IN_FULL = 10
# Control characters of ASCII and Latin-1 but for tab and newline, line separators, and marks that
# turn the direction of text: in a terminal or an editor they could make a line look like another.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class HasStep(Protocol):
    """Anything that knows the optimizer step, such as `expkit.core.progress.Progress`."""

    step: int


class RunLog:
    """Sends what is logged, and Python's warnings, to the log of one run until it is closed.

    There is one at a time in a process: opening another closes the one before, so that each run's
    file has its own lines only. A run that goes on appends to its files.

    Args:
        directory: the run directory.
        rank: 0 writes ``train.log``, others ``logs/rank<r>.log``.
        level: the least level that is written.
        console: whether the process speaks on the console too: rank 0 of everything, another rank
            of errors alone, which then name it.

    Raises:
        RunDirectoryError: the file cannot be opened.
    """

    _current: RunLog | None = None

    def __init__(
        self, directory: Path, rank: int = 0, *, level: int | str = "INFO", console: bool = True
    ) -> None:
        if RunLog._current is not None:
            RunLog._current.close()
        self.path = directory / (LOG_FILE if rank == 0 else f"{RANK_LOGS_DIRECTORY}/rank{rank}.log")
        self._place = _PlaceFilter(rank)
        try:
            self.path.parent.mkdir(exist_ok=True)
            if self.path.is_fifo():  # it would wait for a reader
                raise OSError(errno.EINVAL, "Is a pipe")
            file = _FileHandler(self.path)
        except OSError as error:
            raise RunDirectoryError(f"cannot open {self.path}: {error.strerror}") from error
        self._handlers: list[logging.Handler] = [file]
        if console:
            self._handlers.append(_ConsoleHandler(rank))
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(level)
        for handler in self._handlers:
            handler.addFilter(_RepeatFilter())
            handler.addFilter(self._place)
            root.addHandler(handler)
        logging.captureWarnings(True)
        RunLog._current = self

    def follow(self, progress: HasStep) -> None:
        """Write the step of ``progress`` into each line from now on."""
        self._place.progress = progress

    def close(self) -> None:
        """Leave logging as it was; safe to call twice."""
        if RunLog._current is not self:
            return
        RunLog._current = None
        logging.captureWarnings(False)
        root = logging.getLogger()
        root.setLevel(self._level_before)
        for handler in self._handlers:
            root.removeHandler(handler)
            handler.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def escape_control(text: str) -> str:
    r"""``text`` with control characters written as ``\x1b`` and the like, but tab and newline."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class _PlaceFilter(logging.Filter):
    """Adds rank and step to every record."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.progress: HasStep | None = None
        self._rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        record.rank = self._rank
        record.step = "-" if self.progress is None else self.progress.step
        return True


class _RepeatFilter(logging.Filter):
    """Lets the first ten of equal warnings pass, then the 100th, 1,000th and so on, with counts."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        record.repeats = ""
        if record.levelno < logging.WARNING:
            return True
        key = (record.name, record.levelno, record.getMessage())
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        if len(self._counts) > _MAX_REMEMBERED:
            self._counts.pop(next(iter(self._counts)), None)  # the one not seen for longest
        if count < _SHOWN_IN_FULL:
            return True
        digits = str(count)
        if digits.strip("0") != "1":
            return False
        record.repeats = f" [{count} times; equal ones are left out until there are {count * 10}]"
        return True


class _FileFormatter(logging.Formatter):
    """``2026-11-30T07:12:03.125+00:00 INFO rank 0 step 10 module: text``, more lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = (
            f"{moment.isoformat(timespec='milliseconds')} {record.levelname} "
            f"rank {_attribute(record, 'rank')} step {_attribute(record, 'step')} {record.name}: "
        )
        return escape_control(head + _text(self, record)).replace("\n", "\n    ")


class _ConsoleFormatter(logging.Formatter):
    """The text alone, with its level from warnings on, and the rank where it is not 0."""

    def format(self, record: logging.LogRecord) -> str:
        rank = _attribute(record, "rank")
        head = f"rank {rank}: " if rank else ""
        head += f"{record.levelname}: " if record.levelno >= logging.WARNING else ""
        return escape_control(head + _text(self, record))


def _attribute(record: logging.LogRecord, name: str) -> Any:
    return getattr(record, name)


def _text(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage().rstrip("\n") + str(_attribute(record, "repeats"))
    if record.exc_info:
        text += "\n" + formatter.formatException(record.exc_info)
    return text


class _FileHandler(RotatingFileHandler):
    """Appends to a file, which starts anew (one old one is kept) when it has grown to 32 MiB."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
        self.setFormatter(_FileFormatter())
        self._failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        """Say once on standard error that the log is incomplete."""
        if not self._failed:
            self._failed = True
            sys.stderr.write(f"cannot write {self.baseFilename}: {sys.exc_info()[1]}\n")

    def close(self) -> None:
        """Release the file, whether or not its last lines could be written."""
        try:
            super().close()
        except OSError as error:
            sys.stderr.write(f"cannot write {self.baseFilename}: {error}\n")


class _ConsoleHandler(logging.Handler):
    """Writes errors to standard error and all else to standard output, as they are now.

    A progress bar may have put itself in their place. Where nobody reads on, it goes quiet: the
    file has every line.
    """

    def __init__(self, rank: int) -> None:
        super().__init__(logging.NOTSET if rank == 0 else logging.ERROR)
        self.setFormatter(_ConsoleFormatter())
        self.addFilter(lambda record: not hasattr(record, "in_file_only"))
        self._is_broken = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_broken:
            return
        stream = sys.stderr if record.levelno >= logging.ERROR else sys.stdout
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except OSError:
            self._is_broken = True
