"""The ranks of a run as a process group of paddle.distributed."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from numpy.typing import NDArray
from paddle import Tensor

from expkit.core.collective import Collective, Flags, ReduceOp
from expkit.core.errors import RankError
from expkit.drivers.paddle.meeting import Meeting, Merge

_REDUCTIONS: Mapping[ReduceOp, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]]
_REDUCTIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}

_FAILURES = (RuntimeError, OSError)
"""What Paddle raises where a connection is closed or a time is over."""


class ProcessGroup(Collective):
    """What ranks tell each other: tensors by paddle.distributed, all else where they meet.

    Paddle's gloo waits 30 seconds for the slowest rank and no more, so before tensors are broadcast
    the ranks meet, for as long as ``timeout_s`` allows. The gradients go without: meeting would
    cost a third of a small exchange.

    Args:
        local_rank: number of this process on its machine.
        timeout_s: how long a collective waits for the slowest rank.
        meeting: where the ranks wait for each other.
    """

    def __init__(self, *, local_rank: int, timeout_s: float, meeting: Meeting) -> None:
        super().__init__()
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.local_rank = local_rank
        self._timeout_s = timeout_s
        self._meeting = meeting

    # -- collectives -------------------------------------------------------------------------------

    def all_reduce(self, array: NDArray[Any], op: ReduceOp = "sum") -> NDArray[Any]:
        """See `Collective.all_reduce`. Ranks are added in their order."""
        if op not in _REDUCTIONS:
            raise ValueError(f"op is {op!r}; allowed: {', '.join(_REDUCTIONS)}")
        array = np.array(array)
        if array.dtype not in (np.float64, np.int64):
            raise ValueError(f"the array is of {array.dtype}; allowed: float64, int64")

        def merge(messages: Sequence[bytes]) -> bytes:
            arrays = [np.frombuffer(message, array.dtype) for message in messages]
            return functools.reduce(_REDUCTIONS[op], arrays).tobytes()

        purpose = f"all_reduce, {op} of {array.dtype} {list(array.shape)}"
        answer = self._exchange(purpose, array.tobytes(), merge)
        return np.frombuffer(answer, array.dtype).reshape(array.shape).copy()

    def all_gather(self, value: Any) -> list[Any]:
        """See `Collective.all_gather`."""
        answer = self._exchange("all_gather", pickle.dumps(value), pickle.dumps)
        return [pickle.loads(message) for message in pickle.loads(answer)]

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """See `Collective.broadcast`."""
        if not 0 <= src < self.world_size:
            raise ValueError(f"src is {src}; allowed: ranks 0 to {self.world_size - 1}")
        message = pickle.dumps(value) if self.rank == src else b""
        answer = self._exchange("broadcast", message, lambda messages: messages[src])
        return value if self.rank == src else pickle.loads(answer)

    def barrier(self) -> None:
        """See `Collective.barrier`."""
        self._meeting.wait("barrier", self._timeout_s)

    # -- tensors -----------------------------------------------------------------------------------

    def sum_tensor(self, tensor: Tensor) -> None:
        """Replace a tensor on the device by its sum over all ranks."""
        try:
            dist.all_reduce(tensor)
        except _FAILURES as error:
            raise self.failure("all_reduce of tensors", error) from error

    def tell(self, numbers: Tensor) -> list[Any]:
        """The greatest of each number over all ranks."""
        try:
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        except _FAILURES as error:
            raise self.failure("all_reduce of numbers", error) from error
        told: list[Any] = numbers.tolist()
        return told

    @paddle.no_grad()
    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors on the device by those of rank 0."""
        by_dtype: dict[Any, list[Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        purpose = "broadcast of tensors"
        self._meeting.wait(purpose, self._timeout_s)
        for alike in by_dtype.values():
            flat = paddle.concat([tensor.detach().reshape([-1]) for tensor in alike])
            try:
                dist.broadcast(flat, 0)
            except _FAILURES as error:
                raise self.failure(purpose, error) from error
            start = 0
            for tensor in alike:
                stop = start + math.prod(tensor.shape)
                tensor.set_value(flat[start:stop].reshape(tensor.shape))
                start = stop

    # -- flags -------------------------------------------------------------------------------------

    def answer(self, flags: Sequence[bool]) -> None:
        """Keep what the ranks told each other when they exchanged gradients."""
        self._answers = tuple(flags)

    def answers(self) -> Flags:
        """See `Collective.answers`."""
        return self._answers

    # -- errors ------------------------------------------------------------------------------------

    def _exchange(self, purpose: str, message: bytes, merge: Merge) -> bytes:
        return self._meeting.exchange(purpose, message, merge, self._timeout_s)

    def failure(self, what: str, error: Exception) -> RankError:
        """The error for a collective that failed."""
        lines = [line for line in str(error).splitlines() if line.strip(" -")]
        return RankError(
            f"{what} on rank {self.rank} of {self.world_size} failed: another rank is gone, or did "
            f"not come within 30 s, which Paddle's gloo has fixed (driver.timeout_s="
            f"{self._timeout_s:g} holds where ranks wait for each other): "
            f"{lines[-1].strip() if lines else type(error).__name__}"
        )
