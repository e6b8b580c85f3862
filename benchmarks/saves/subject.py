"""What there is to save: a model and the state of its optimizer, while steps go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from expkit.core.driver import Driver

ROWS = 1024  # of each square matrix of weights
MATRIX_BYTES = 4 * ROWS * ROWS


class Subject(ABC):
    """A model of float32 matrices that Adam trains, on a driver.

    Attributes:
        driver: has the model and the optimizer, a native one, so that all ways save the same
            tensors.
    """

    driver: Driver

    @abstractmethod
    def step(self) -> None:
        """Some work, and a new value for every weight and every moment."""

    @abstractmethod
    def live(self) -> list[NDArray[Any]]:
        """All arrays of the state, in the memory of the tensors themselves."""

    @abstractmethod
    def copier(self) -> Callable[[], None]:
        """Copies all tensors into buffers that are there already."""

    @abstractmethod
    def save(self, path: Path) -> Sequence[Path]:
        """Save as the framework's documentation does; gives the files."""
