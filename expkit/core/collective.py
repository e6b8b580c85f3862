"""Communication between ranks; for one process the collectives are the identity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import RankError

ReduceOp = Literal["sum", "min", "max"]
T = TypeVar("T")

Flags = tuple[bool, ...]


class Collective(ABC):
    """What ranks tell each other. There is no mean on purpose: sums and weights travel.

    Besides the collectives there are *flags*: a few booleans of each rank that travel with the
    gradients, so that all ranks learn after each step what any of them has asked for, and nothing
    is sent but the gradients.

    Attributes:
        rank: number of this process over all machines, from 0.
        local_rank: number of this process on its machine, from 0.
        world_size: processes in all.
    """

    rank: int
    local_rank: int
    world_size: int

    def __init__(self) -> None:
        self._flags: Callable[[], Flags] = tuple

    # -- collectives -------------------------------------------------------------------------------

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
        """Wait until each rank has come here, for as long as the longest step may take."""

    def any_rank(self, flag: bool) -> bool:
        """Whether any rank has set its flag: the same answer on all."""
        return bool(self.all_reduce(np.array([int(flag)]), "max")[0])

    def call_on_main(self, function: Callable[[], T]) -> T:
        """Call a function on rank 0 alone, and give its result to all.

        Raises:
            RankError: on the other ranks, where it raised on rank 0; there its own error.
        """
        outcome: tuple[Any, str | None] = (None, None)
        failure: Exception | None = None
        if self.rank == 0:
            try:
                outcome = (function(), None)
            except Exception as error:
                failure = error
                outcome = (None, f"{type(error).__name__}: {error}")
        self.barrier()
        result, message = self.broadcast(outcome)
        if failure is not None:
            raise failure
        if message is not None:
            raise RankError(f"rank 0 failed: {message}")
        answer: T = result
        return answer

    # -- flags -------------------------------------------------------------------------------------

    def watch(self, flags: Callable[[], Flags]) -> None:
        """Ask ``flags`` for this rank's flags each time gradients are exchanged."""
        self._flags = flags
        self.answer((False,) * len(flags()))

    def raised(self) -> Flags:
        """This rank's own flags, now."""
        return self._flags()

    @abstractmethod
    def answer(self, flags: Flags) -> None:
        """Keep what the ranks have told each other."""

    @abstractmethod
    def answers(self) -> Flags:
        """Which flags any rank had raised at the last exchange, or `agree`; the same on all."""

    def agree(self) -> Flags:
        """Which flags any rank has raised now: a collective of its own."""
        flags = np.array(self.raised(), dtype=np.int64)
        agreed = tuple(bool(flag) for flag in self.all_reduce(flags, "max"))
        self.answer(agreed)
        return agreed


class SingleProcess(Collective):
    """A world of one."""

    def __init__(self) -> None:
        super().__init__()
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

    def answer(self, flags: Flags) -> None:
        """Nothing to keep: nobody else can have raised one."""

    def answers(self) -> Flags:
        """The flags as they are."""
        return self.raised()
