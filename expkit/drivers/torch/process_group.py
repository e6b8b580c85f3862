"""The ranks of a run as a process group of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from expkit.core.collective import Collective, Flags, ReduceOp
from expkit.core.errors import RankError

_OPS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}

_BROADCAST_BYTES = 250 * 2**20


class ProcessGroup(Collective):
    """What ranks tell each other by torch.distributed.

    Host arrays and objects travel over gloo, whatever the gradients travel over, so that nobody
    waits for an accelerator.

    Args:
        local_rank: number of this process on its machine.
        timeout_s: how long a collective waits for the slowest rank.
        host: a gloo group of all ranks.
        device: the device on which gradients are exchanged, over the default group.
    """

    def __init__(
        self, *, local_rank: int, timeout_s: float, host: dist.ProcessGroup, device: torch.device
    ) -> None:
        super().__init__()
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.local_rank = local_rank
        self.device = device
        self._timeout_s = timeout_s
        self._host = host
        self._received = torch.empty(0)
        self._answers: Flags = ()
        self._later: Callable[[], Sequence[bool]] | None = None

    # -- collectives -------------------------------------------------------------------------------

    def all_reduce(self, array: NDArray[Any], op: ReduceOp = "sum") -> NDArray[Any]:
        """See `Collective.all_reduce`."""
        if op not in _OPS:
            raise ValueError(f"op is {op!r}; allowed: {', '.join(_OPS)}")
        tensor = torch.from_numpy(np.array(array))
        if tensor.dtype not in (torch.float64, torch.int64):
            raise ValueError(f"the array is of {tensor.dtype}; allowed: float64, int64")
        if tensor.numel():
            with self.told("all_reduce"):
                dist.all_reduce(tensor, _OPS[op], group=self._host)
        return tensor.numpy()

    def all_gather(self, value: Any) -> list[Any]:
        """See `Collective.all_gather`."""
        values: list[Any] = [None] * self.world_size
        with self.told("all_gather"):
            dist.all_gather_object(values, value, group=self._host)
        return values

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """See `Collective.broadcast`."""
        if not 0 <= src < self.world_size:
            raise ValueError(f"src is {src}; allowed: ranks 0 to {self.world_size - 1}")
        values = [value if self.rank == src else None]
        with self.told("broadcast"):
            dist.broadcast_object_list(values, src=src, group=self._host)
        return value if self.rank == src else values[0]

    def barrier(self) -> None:
        """See `Collective.barrier`."""
        with self.told("barrier"):
            dist.barrier(group=self._host)

    def gather_arrays(self, array: NDArray[Any], on_all: bool = False) -> list[NDArray[Any]] | None:
        """Arrays of one shape and type by rank; None on ranks other than 0 unless ``on_all``."""
        own = torch.from_numpy(array.reshape(-1).view(np.uint8))  # torch knows no bfloat16 of NumPy
        keeps = on_all or self.rank == 0
        parts = [torch.empty_like(own) for _ in range(self.world_size)] if keeps else None
        with self.told("gather"):
            if on_all:
                dist.all_gather(parts, own, group=self._host)
            else:
                dist.gather(own, parts, dst=0, group=self._host)
        if parts is None:
            return None
        return [part.numpy().view(array.dtype).reshape(array.shape) for part in parts]

    # -- tensors -----------------------------------------------------------------------------------

    def sum_tensor(self, tensor: Tensor) -> None:
        """Replace a contiguous tensor on the device by its sum over all ranks."""
        try:
            if self.world_size == 2 and self.device.type == "cpu":
                self._swap_and_add(tensor)
            else:
                dist.all_reduce(tensor)
        except RuntimeError as error:
            raise self.failure("sum of tensors", error) from error

    def _swap_and_add(self, tensor: Tensor) -> None:
        """The sum over two ranks: as many bytes as gloo's all-reduce sends, in half the time.

        That one goes round the ranks twice, and through a thread of its own. The sum of two is the
        same in either order, to the last bit.
        """
        if (self._received.dtype, self._received.shape) != (tensor.dtype, tensor.shape):
            self._received = torch.empty_like(tensor)
        other = 1 - self.rank
        works: list[Any] = [dist.isend(tensor, other), dist.irecv(self._received, other)]
        for work in works:
            work.wait()
        tensor.add_(self._received)

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors on the device by those of rank 0."""
        if tensors:
            c10d: Any = dist
            with self.told("broadcast of tensors"), torch.no_grad():
                detached = [tensor.detach() for tensor in tensors]
                c10d._broadcast_coalesced(dist.group.WORLD, detached, _BROADCAST_BYTES, 0)

    def sum_in_background(self, numbers: Sequence[int]) -> Callable[[], list[int]]:
        """Sum numbers on the host while the device computes.

        Returns:
            Waits for the sums and gives them.
        """
        tensor = torch.tensor(numbers, dtype=torch.int64)
        with self.told("all_reduce in the background"):
            work: Any = dist.all_reduce(tensor, group=self._host, async_op=True)

        def wait() -> list[int]:
            with self.told("all_reduce in the background"):
                work.wait()
            return tensor.tolist()

        return wait

    # -- flags -------------------------------------------------------------------------------------

    def answer(self, flags: Sequence[bool]) -> None:
        """See `Collective.answer`."""
        self._answers, self._later = tuple(flags), None

    def answer_later(self, wait: Callable[[], Sequence[bool]]) -> None:
        """As `answer`, with flags that are still on their way."""
        self._later = wait

    def answers(self) -> Flags:
        """See `Collective.answers`."""
        if self._later is not None:
            self._answers, self._later = tuple(self._later()), None
        return self._answers

    def tell(self, numbers: Sequence[int]) -> list[int]:
        """The greatest of each number over all ranks."""
        return self.all_reduce(np.array(numbers, dtype=np.int64), "max").tolist()

    # -- errors ------------------------------------------------------------------------------------

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Turns the errors of a collective into a `RankError`."""
        try:
            yield
        except RuntimeError as error:
            raise self.failure(what, error) from error

    def failure(self, what: str, error: RuntimeError) -> RankError:
        """The error for a collective that failed."""
        reason = str(error).strip().partition("\n")[0]
        return RankError(
            f"{what} on rank {self.rank} of {self.world_size} failed: another rank is gone, or did "
            f"not come within driver.timeout_s={self._timeout_s:g}: {reason}"
        )
