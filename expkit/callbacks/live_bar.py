"""The bar that a terminal shows."""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod
from typing import Any, TextIO, final

from expkit.core.progress import Progress

_BAR_WIDTH = 16


class Bar(ABC):
    """Shows where a run stands, in one place of the screen.

    Attributes:
        redraw_s: seconds after which it wants to be drawn again.
    """

    redraw_s: float

    @abstractmethod
    def show(self, progress: Progress, *texts: str) -> None:
        """Draw the present position, and beside it the first of ``texts`` that fits."""

    @abstractmethod
    def close(self) -> None:
        """Take the bar away."""


@final
class NoBar(Bar):
    """Shows nothing."""

    redraw_s = math.inf

    def show(self, progress: Progress, *texts: str) -> None:
        """Nothing to draw on."""

    def close(self) -> None:
        """Nothing to take away."""


@final
class RichBar(Bar):
    """A bar on standard output, drawn only when ``show`` is called: it needs no thread.

    While it is there, what is printed or logged to the terminal appears above it.

    Args:
        force: draw even where standard output is no terminal.
    """

    redraw_s = 0.25

    def __init__(self, force: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        before = {id(stream): name for name, stream in _standard_streams().items()}
        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(force_terminal=True if force else None),
            auto_refresh=False,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._rich.start()
        self._task = self._rich.add_task("", total=None, text="")
        self._handlers: list[tuple[logging.StreamHandler[Any], TextIO]] = []
        self._redirect_logs(before)

    def show(self, progress: Progress, *texts: str) -> None:
        """See `Bar.show`."""
        epoch = min(progress.epoch + 1, progress.n_epochs or progress.epoch + 1)
        limit = "" if progress.n_epochs is None else f"/{progress.n_epochs}"
        description = f"epoch {epoch}{limit}"
        steps = str(progress.total_steps or "?")
        taken = len(description) + _BAR_WIDTH + max(len(str(progress.step)), len(steps))
        # One column for the slash, one between two columns each, and one that is left free.
        room = self._rich.console.width - taken - len(steps) - 5
        fitting = (text for text in texts if len(text) <= room)
        self._rich.update(
            self._task,
            description=description,
            completed=progress.step,
            total=progress.total_steps,
            text=next(fitting, ""),
            refresh=True,
        )

    def close(self) -> None:
        """See `Bar.close`."""
        while self._handlers:
            handler, stream = self._handlers.pop()
            handler.setStream(stream)
        self._rich.stop()

    def _redirect_logs(self, before: dict[int, str]) -> None:
        """Log handlers that hold a stream of the terminal would write across the bar."""
        now = _standard_streams()
        for logger in (logging.getLogger(), logging.getLogger("expkit")):
            for handler in logger.handlers:
                if not isinstance(handler, logging.StreamHandler):
                    continue
                name = before.get(id(handler.stream))
                if name is not None and now[name] is not handler.stream:
                    self._handlers.append((handler, handler.stream))
                    handler.setStream(now[name])


def _standard_streams() -> dict[str, TextIO]:
    return {"stdout": sys.stdout, "stderr": sys.stderr}
