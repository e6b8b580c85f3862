"""Communication between ranks; for one process the collectives are the identity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ReduceOp = Literal["sum", "min", "max"]


class Collective(ABC):
    """What ranks tell each other. There is no mean on purpose: sums and weights travel.

    Attributes:
        rank: number of this process over all machines, from 0.
        local_rank: number of this process on its machine, from 0.
        world_size: processes in all.
    """

    rank: int
    local_rank: int
    world_size: int

    @abstractmethod
    def all_reduce(self, array: NDArray[Any], op: ReduceOp = "sum") -> NDArray[Any]:
        """Reduce a float64 or int64 host array over all ranks; each rank gets the result."""

    @abstractmethod
    def all_gather(self, value: Any) -> list[Any]:
        """The values of all ranks in rank order; sizes may differ."""

    @abstractmethod
    def broadcast(self, value: Any, src: int = 0) -> Any:
        """The value of rank ``src`` on each rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until each rank has come here."""

    @abstractmethod
    def any_rank(self, flag: bool) -> bool:
        """Whether any rank has set its flag: the same answer on all. Asked after each step."""


class SingleProcess(Collective):
    """A world of one."""

    def __init__(self) -> None:
        self.rank = 0
        self.local_rank = 0
        self.world_size = 1

    def all_reduce(self, array: NDArray[Any], op: ReduceOp = "sum") -> NDArray[Any]:
        """A copy: the sum, least and greatest of one."""
        if op not in ("sum", "min", "max"):
            raise ValueError(f"op is {op!r}; allowed: sum, min, max")
        return np.array(array)

    def all_gather(self, value: Any) -> list[Any]:
        """A list of one."""
        return [value]

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """The value itself."""
        if src != 0:
            raise ValueError(f"src is {src}, but the world has one rank: 0")
        return value

    def barrier(self) -> None:
        """Nobody to wait for."""

    def any_rank(self, flag: bool) -> bool:
        """The flag itself."""
        return flag
