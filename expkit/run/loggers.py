"""What loggers have in common: failing without harm, going back to a step, and being many."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from expkit.core.errors import RunDirectoryError
from expkit.core.logger import Logger, Split

log = logging.getLogger(__name__)


class FileLogger(Logger):
    """A logger that writes into the run directory. It reports once that it cannot.

    Attributes:
        path: the file or directory that is written.
        failed: whether something could not be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False

    def log(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """See `Logger.log`."""
        self._attempt(self._record, split, step, epoch, metrics)

    def flush(self) -> None:
        """Nothing to do: every record goes to the operating system at once."""

    def close(self) -> None:
        """See `Logger.close`."""
        self._attempt(self._release)

    @abstractmethod
    def rewind(self, step: int) -> None:
        """Forget what was recorded after ``step``: the run goes on from there.

        Raises:
            OSError: it cannot be forgotten, so that steps would stand there twice.
        """

    @abstractmethod
    def _record(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write one record, or raise."""

    @abstractmethod
    def _release(self) -> None:
        """Close the file; may be called twice."""

    def _attempt(self, write: Callable[..., None], *args: Any) -> None:
        """Call ``write``; the first error is a warning, later ones are silent."""
        try:
            write(*args)
        except Exception as error:
            if not self.failed:
                self.failed = True
                log.warning(
                    "%s cannot write %s (%s); the training goes on without",
                    type(self).__name__,
                    self.path,
                    error,
                )


class Describing(ABC):
    """What a logger has that shows the run itself beside its curves."""

    @abstractmethod
    def describe(self, config_text: str, settings: Mapping[str, Any]) -> None:
        """Take what the run is made from; nothing need be written before the first record.

        Args:
            config_text: the config as it stands in the run directory.
            settings: the same as values, groups as nested mappings.
        """

    @abstractmethod
    def conclude(self, metrics: Mapping[str, float]) -> None:
        """Show what a completed run came to, beside its settings."""


class LoggerGroup(Logger):
    """Passes everything on to several loggers, in order, until one raises: it is left out then."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self.loggers = tuple(loggers)

    def log(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """See `Logger.log`."""
        self._each("log", split, step, epoch, metrics)

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._each("flush")

    def close(self) -> None:
        """See `Logger.close`."""
        self._each("close")

    def rewind(self, step: int) -> None:
        """Let the loggers that write files forget what came after ``step``.

        Raises:
            RunDirectoryError: one of them cannot.
        """
        for logger in self.loggers:
            if isinstance(logger, FileLogger):
                try:
                    logger.rewind(step)
                except OSError as error:
                    message = f"cannot take back what {logger.path} holds after step {step}"
                    raise RunDirectoryError(f"{message}: {error.strerror or error}") from error

    def describe(self, config_text: str, settings: Mapping[str, Any]) -> None:
        """Tell the loggers that show it what the run is made from; see `Describing`."""
        for logger in self.loggers:
            if isinstance(logger, Describing):
                logger.describe(config_text, settings)

    def conclude(self, metrics: Mapping[str, float]) -> None:
        """Tell the loggers that show it what a completed run came to; see `Describing`."""
        for logger in self.loggers:
            if isinstance(logger, Describing):
                logger.conclude(metrics)

    def _each(self, verb: str, *args: Any) -> None:
        for logger in self.loggers:
            try:
                getattr(logger, verb)(*args)
            except Exception as error:
                self.loggers = tuple(other for other in self.loggers if other is not logger)
                name = type(logger).__name__
                log.warning(
                    "logger %s failed and is left out from here on (%s: %s)",
                    name,
                    type(error).__name__,
                    error,
                )
