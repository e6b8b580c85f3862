"""What ranks print: all of it into a file for each, some of it onto the console."""

from __future__ import annotations

import errno
import logging
import os
import queue
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, TextIO

from expkit.core.errors import ConfigError, Problem

log = logging.getLogger(__name__)

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")

FILE_BYTES = 32 << 20
"""How long the file of a rank becomes; what is beyond is left out, said in its last line."""

_LINE_BYTES = 1 << 13
_TAIL_LINES = 100
_WAITING_PIECES = 256
_PATIENCE_S = 0.2
_CONTROL = dict.fromkeys({*range(32), 127} - {0x09, 0x1B}, "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True)
class Routes:
    """Where the output of ranks goes.

    Attributes:
        directory: of the files ``rank1.out`` and so on.
        shown: streams of ranks other than 0 that are shown on the console, too.
        keeps_main: whether rank 0 has a file as well; it is on the console always.
    """

    directory: Path
    shown: tuple[Stream, ...]
    keeps_main: bool = False


_WORDS: dict[str, tuple[Stream, ...]] = {
    "all": STREAMS,
    "only_error": ("stderr",),
    "ignore": (),
}


def routes(worker_output: str, logs: Path) -> Routes:
    """What ``driver.worker_output`` says: all, only_error, ignore, or a directory."""
    if worker_output in _WORDS:
        return Routes(logs, _WORDS[worker_output])
    return Routes(Path(worker_output), (), keeps_main=True)


def check_directory(worker_output: str) -> None:
    """Make sure that the directory which ``driver.worker_output`` may name can be written.

    Raises:
        ConfigError: it cannot, or it is no path but a word much like one of those allowed.
    """
    if worker_output in _WORDS:
        return
    hint = "driver.worker_output=only_error"
    directory = Path(worker_output)
    if os.sep not in worker_output and not directory.is_dir():
        message = f"is {worker_output!r}; allowed: {', '.join(_WORDS)}, or a path such as ./texts"
        raise ConfigError([Problem("driver.worker_output", message, hint)])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        message = f"is {worker_output!r}, where nothing can be written: {error.strerror}"
        raise ConfigError([Problem("driver.worker_output", message, hint)]) from error


class Console:
    """This process's own stdout and stderr, written to by a thread.

    A console that takes nothing (a stopped terminal, a pipe nobody reads) must not keep the
    supervisor from watching: after a while what it does not take is dropped.
    """

    def __init__(self) -> None:
        self._pieces: queue.Queue[tuple[TextIO, bytes] | None] = queue.Queue(_WAITING_PIECES)
        self._writer = threading.Thread(target=self._write, name="console", daemon=True)
        self._is_stuck = False

    def show(self, stream: Stream, data: bytes) -> None:
        """Write to the console, soon."""
        target: TextIO | None = getattr(sys, stream)
        if target is None:
            return
        try:
            self._pieces.put((target, data), timeout=0 if self._is_stuck else _PATIENCE_S)
            self._is_stuck = False
        except queue.Full:
            self._is_stuck = True

    def __enter__(self) -> Console:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # what was said before comes before what ranks say
        self._writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._pieces.put(None, timeout=_PATIENCE_S)
            self._writer.join(timeout=1.0)
        except queue.Full:
            pass

    def _write(self) -> None:
        while (piece := self._pieces.get()) is not None:
            target, data = piece
            try:
                binary: BinaryIO | None = getattr(target, "buffer", None)
                if binary is None:
                    target.write(data.decode(errors="replace"))
                else:
                    binary.write(data)
                target.flush()
            except (OSError, ValueError):  # closed: whoever did it does not want to read
                continue


class RankOutput:
    """What one rank prints.

    Args:
        rank: its number.
        routes: where its output goes.
        console: where some of it is shown.
    """

    def __init__(self, rank: int, routes: Routes, console: Console) -> None:
        self._rank = rank
        self._console = console
        self._shown = STREAMS if rank == 0 else routes.shown
        self._path = routes.directory / f"rank{rank}.out"
        self._file: BinaryIO | None = None
        self._room = FILE_BYTES
        self._open_lines: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._is_muted = False

    @property
    def tail(self) -> str:
        """Its last lines on stderr."""
        return "\n".join(map(readable, self._tail))

    @property
    def shows_errors(self) -> bool:
        """Whether its stderr is on the console."""
        return "stderr" in self._shown and not self._is_muted

    def mute(self) -> None:
        """Show no more of it: what it says while it is being ended is for its file only."""
        self._is_muted = True

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take in what the rank has printed."""
        if self._rank == 0 and not self._is_muted:
            self._console.show(stream, data)
        whole = self._open_lines[stream] + data
        cut = whole.rfind(b"\n") + 1
        if len(whole) - cut > _LINE_BYTES:
            cut = len(whole)
        self._open_lines[stream] = whole[cut:]
        if cut:
            self._take(stream, whole[:cut])

    def note(self, data: bytes) -> None:
        """Keep in its file what the rank has not printed: its stacks."""
        self._keep(data)

    def close(self) -> None:
        """Take what has no end of line as the last line."""
        for stream, rest in self._open_lines.items():
            if rest:
                self._take(stream, rest + b"\n")
                self._open_lines[stream] = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self, stream: Stream, lines: bytes) -> None:
        self._keep(lines)
        pieces = lines.removesuffix(b"\n").split(b"\n")
        if stream == "stderr":
            self._tail.extend(pieces[-_TAIL_LINES:])
        if self._rank > 0 and stream in self._shown and not self._is_muted:
            block = "".join(f"[rank {self._rank}] {readable(piece)}\n" for piece in pieces)
            self._console.show(stream, block.encode())

    def _keep(self, data: bytes) -> None:
        try:
            if self._file is None and self._room > 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab")
                self._room = FILE_BYTES - self._file.tell()
            if self._file is None or self._room <= 0:
                return
            if len(data) > self._room:
                data = data[: self._room] + b"\n(what follows is left out)\n"
            self._room -= len(data)
            self._file.write(data)
            self._file.flush()
        except OSError as error:  # a full disk: the run itself shall say how it takes it
            self._room = 0
            log.warning("the output of rank %d is kept no longer: %s", self._rank, error)


def readable(line: bytes) -> str:
    """A line as a terminal would show it in the end: what bars have overwritten is gone."""
    text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return text.translate(_CONTROL)


def open_streams() -> None:
    """Give a process whose output was closed one that leads nowhere: nobody wants to read it."""
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
