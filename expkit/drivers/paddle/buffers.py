"""Buffers, such as the statistics of batch norm, equal on all ranks after each update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from expkit.core.errors import DriverError
from expkit.drivers.paddle.process_group import ProcessGroup
from expkit.drivers.replicas import SharedBuffers

_HIDDEN = frozenset({"_mean", "_variance", "weight_u", "weight_v"})
"""Names under which Paddle's norms keep statistics, as parameters that are not trained."""

_STATISTICS = _HIDDEN | {"running_mean", "running_var"}
"""Names of what changes in each step."""

_COUNTER = "num_batches_tracked"
"""Of a batch norm: equal on all ranks by its nature."""

_FLOATS = (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


class Buffers(SharedBuffers):
    """See `SharedBuffers`.

    Args:
        model: whose buffers these are, equal on all ranks.
        group: the ranks.
    """

    def __init__(self, model: nn.Layer, group: ProcessGroup) -> None:
        self._group = group
        self._floats: list[_Buffer] = []
        self._others: list[_Buffer] = []
        seen: set[int] = set()
        for prefix, layer in model.named_sublayers(include_self=True):
            places = [(layer._buffers, name) for name in layer._buffers if name != _COUNTER]
            places += [(layer._parameters, name) for name in layer._parameters if name in _HIDDEN]
            for table, name in places:
                tensor = table[name]
                if tensor is None or not tensor.stop_gradient or id(tensor) in seen:
                    continue
                if not tensor._is_initialized():  # scratch memory, such as an LSTM's
                    continue
                seen.add(id(tensor))
                path = f"{prefix}.{name}" if prefix else name
                before, changes = tensor.detach().clone(), name in _STATISTICS
                buffer = _Buffer(table, name, path, before, is_live=changes)
                (self._floats if tensor.dtype in _FLOATS else self._others).append(buffer)
        self._before: dict[str, Tensor] = {}
        self._set_live([buffer.is_live for buffer in self._all()])
        self.exist = bool(self._all())

    @paddle.no_grad()
    def _remember(self) -> None:
        for buffer in self._still:
            buffer.before.copy_(buffer.tensor, False)
        for width, live in self._live.items():
            self._before[width] = _flat(live, width)

    @paddle.no_grad()
    def _changes(self) -> list[Tensor]:
        # Wider numbers than those of the gradients' buffer travel by themselves.
        return [self._own_change(width) for width in self._live if width == "float32"]

    def _notice(self) -> bool:
        return any(buffer.has_changed for buffer in self._still)

    @paddle.no_grad()
    def _take(self, sums: Sequence[Tensor], noticed: bool) -> None:
        for total in sums:
            self._follow(self._live["float32"], self._before["float32"], total)
        if "float64" in self._live:
            total = self._own_change("float64")
            self._group.sum_tensor(total)
            self._follow(self._live["float64"], self._before["float64"], total)
        if noticed:
            self._send_more()
        live = [buffer.tensor for buffer in self._others if buffer.is_live]
        if live:
            self._group.broadcast_tensors(live)

    def _send_more(self) -> None:
        """Send from now on what any rank has changed, and follow these changes already."""
        own = [buffer.is_live or buffer.has_changed for buffer in self._all()]
        any_rank = self._group.all_reduce(np.array(own, dtype=np.int64), "max").tolist()
        pairs = zip(self._all(), any_rank, strict=True)
        fresh = [b for b, is_live in pairs if is_live and not b.is_live and b in self._floats]
        for width, part in _by_width(fresh).items():
            before = _flat(part, width, before=True)
            total = _change(_flat(part, width), before)
            self._group.sum_tensor(total)
            self._follow(part, before, total)
        self._set_live([bool(is_live) for is_live in any_rank])

    def _own_change(self, width: str) -> Tensor:
        return _change(_flat(self._live[width], width), self._before[width])

    def _follow(self, buffers: Sequence[_Buffer], before: Any, total: Tensor) -> None:
        # Where nothing was added, not even a rounding error is.
        after = paddle.where(total == 0, before, before + total * (1.0 / self._group.world_size))
        start = 0
        for buffer in buffers:
            tensor = buffer.tensor
            stop = start + math.prod(tensor.shape)
            tensor.copy_(after[start:stop].reshape(tensor.shape).astype(tensor.dtype), False)
            start = stop

    def _all(self) -> list[_Buffer]:
        return self._floats + self._others

    def _set_live(self, live: Sequence[bool]) -> None:
        for buffer, is_live in zip(self._all(), live, strict=True):
            buffer.is_live = is_live
        self._live = _by_width([buffer for buffer in self._floats if buffer.is_live])
        self._still = [buffer for buffer in self._all() if not buffer.is_live]


@dataclass(eq=False)
class _Buffer:
    """One buffer of a layer, which may put another tensor in its place at any time."""

    table: dict[str, Any]
    name: str
    path: str
    before: Tensor
    is_live: bool

    @property
    def tensor(self) -> Tensor:
        tensor = self.table[self.name]
        if tensor is None or tensor.shape != self.before.shape:
            shape = None if tensor is None else list(tensor.shape)
            raise DriverError(
                f"buffer {self.path} has changed its shape from {list(self.before.shape)} to "
                f"{shape}; with several ranks a buffer must keep its shape"
            )
        return tensor

    @property
    def has_changed(self) -> bool:
        """Whether it has another value than before the window."""
        return not bool(_same(self.tensor, self.before).all().item())


def _by_width(buffers: Sequence[_Buffer]) -> dict[str, list[_Buffer]]:
    """The buffers by the type in which they are added up: none loses digits."""
    parts: dict[str, list[_Buffer]] = {}
    for buffer in buffers:
        width = "float64" if buffer.before.dtype == paddle.float64 else "float32"
        parts.setdefault(width, []).append(buffer)
    return parts


def _flat(buffers: Sequence[_Buffer], width: str, before: bool = False) -> Tensor:
    tensors = [buffer.before if before else buffer.tensor for buffer in buffers]
    return paddle.concat([tensor.detach().reshape([-1]).astype(width) for tensor in tensors])


def _change(now: Tensor, before: Any) -> Tensor:
    # An infinite constant, or one that is no number, adds nothing.
    return paddle.where(_same(now, before), paddle.zeros_like(now), now - before)


def _same(now: Tensor, before: Any) -> Any:
    """Where two tensors are equal; what is no number counts as equal to its like."""
    return (now == before) | ((now != now) & (before != before))
