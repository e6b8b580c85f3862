"""Where metrics go: the contract between the loop and everything that records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

Split = Literal["train", "eval"]


class Logger(ABC):
    """Takes the numbers of a run. It never ends a training: it tells its own failure once."""

    @abstractmethod
    def log(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Record metrics.

        Args:
            split: what they were computed on.
            step: optimizer step, from 1; 0 = before the first.
            epoch: epoch, from 0.
            metrics: numbers by name.
        """

    @abstractmethod
    def flush(self) -> None:
        """Hand what is buffered to the operating system."""

    @abstractmethod
    def close(self) -> None:
        """Flush and release; may be called twice."""


class NullLogger(Logger):
    """Records nothing."""

    def log(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is held."""
