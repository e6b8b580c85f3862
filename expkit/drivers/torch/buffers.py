"""Buffers, such as the statistics of batch norm, equal on all ranks after each update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from expkit.core.errors import DriverError
from expkit.drivers.replicas import SharedBuffers
from expkit.drivers.torch.process_group import ProcessGroup


class Buffers(SharedBuffers):
    """See `SharedBuffers`.

    Args:
        model: whose buffers these are, equal on all ranks.
        group: the ranks.
    """

    def __init__(self, model: nn.Module, group: ProcessGroup) -> None:
        self._group = group
        self._others: list[_Buffer] = []
        self._floats: list[_Buffer] = []
        seen: set[int] = set()
        for prefix, module in model.named_modules():
            for name, tensor in module._buffers.items():
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                path = f"{prefix}.{name}" if prefix else name
                buffer = _Buffer(module, name, path, isinstance(module, _NormBase))
                if tensor.is_floating_point():
                    buffer.before = tensor.detach().clone()
                    self._floats.append(buffer)
                elif not (buffer.is_statistic and name == "num_batches_tracked"):
                    self._others.append(buffer)
        for buffer in self._all():
            buffer.look()
        self._set_live([buffer.is_statistic for buffer in self._all()])
        self.exist = bool(self._all())

    @torch.no_grad()
    def _remember(self) -> None:
        for buffer in self._floats:
            if buffer.has_changed:  # by whoever loaded a state
                buffer.before.copy_(buffer.tensor)
                buffer.look()
        for buffer in self._others:
            buffer.look()

    @torch.no_grad()
    def _changes(self) -> list[Tensor]:
        return [_change(part) for part in self._parts]

    def _notice(self) -> bool:
        return any(buffer.has_changed for buffer in self._all() if not buffer.is_live)

    @torch.no_grad()
    def _take(self, sums: Sequence[Tensor], noticed: bool) -> None:
        for part, total in zip(self._parts, sums, strict=True):
            self._follow(part, total)
        if noticed:
            self._send_more()
        live = [buffer for buffer in self._others if buffer.is_live]
        self._group.broadcast_tensors([buffer.tensor for buffer in live])

    def _send_more(self) -> None:
        """Send from now on what any rank has changed, and follow these changes already."""
        own = [buffer.is_live or buffer.has_changed for buffer in self._all()]
        any_rank = self._group.all_reduce(np.array(own, dtype=np.int64), "max")
        fresh = [
            buffer
            for buffer, is_live in zip(self._all(), any_rank, strict=True)
            if is_live and not buffer.is_live
        ]
        for part in _by_type([buffer for buffer in fresh if buffer in self._floats]):
            total = _change(part)
            self._group.sum_tensor(total)
            self._follow(part, total)
        self._set_live([bool(is_live) for is_live in any_rank])

    def _follow(self, part: list[_Buffer], total: Tensor) -> None:
        before = torch.cat([buffer.before.reshape(-1) for buffer in part])
        # Where nothing was added, not even a rounding error is.
        after = torch.where(total == 0, before, before + total / self._group.world_size)
        sizes = [buffer.before.numel() for buffer in part]
        values = [
            value.view(buffer.before.shape)
            for value, buffer in zip(after.split(sizes), part, strict=True)
        ]
        torch._foreach_copy_([buffer.before for buffer in part], values)
        torch._foreach_copy_([buffer.tensor for buffer in part], values)
        for buffer in part:
            buffer.look()

    def _all(self) -> list[_Buffer]:
        return self._floats + self._others

    def _set_live(self, live: Sequence[bool]) -> None:
        for buffer, is_live in zip(self._all(), live, strict=True):
            buffer.is_live = is_live
        self._parts = _by_type([buffer for buffer in self._floats if buffer.is_live])


@dataclass(eq=False)
class _Buffer:
    """One buffer of a module, which may replace it by another tensor at any time."""

    module: nn.Module
    name: str
    path: str
    is_statistic: bool
    is_live: bool = False
    before: Tensor = field(default_factory=lambda: torch.empty(0))
    _seen: tuple[Tensor | None, int] = (None, 0)

    @property
    def tensor(self) -> Tensor:
        tensor = self.module._buffers[self.name]
        if tensor is None or (tensor.is_floating_point() and tensor.shape != self.before.shape):
            shape = None if tensor is None else tuple(tensor.shape)
            raise DriverError(
                f"buffer {self.path} has changed its shape from {tuple(self.before.shape)} to "
                f"{shape}; with several ranks a buffer must keep its shape"
            )
        return tensor

    @property
    def has_changed(self) -> bool:
        """Whether it was written to since `look`; statistics of norms do not tell."""
        tensor, version = self._seen
        now = self.module._buffers[self.name]
        return now is not tensor or now is None or now._version != version

    def look(self) -> None:
        tensor = self.tensor
        self._seen = (tensor, tensor._version)


def _change(part: Sequence[_Buffer]) -> Tensor:
    now = torch.cat([buffer.tensor.reshape(-1) for buffer in part])
    before = torch.cat([buffer.before.reshape(-1) for buffer in part])
    return torch.where(now == before, 0, now - before)  # an infinite constant adds nothing


def _by_type(buffers: Sequence[_Buffer]) -> list[list[_Buffer]]:
    parts: dict[tuple[torch.device, torch.dtype], list[_Buffer]] = {}
    for buffer in buffers:
        parts.setdefault((buffer.before.device, buffer.before.dtype), []).append(buffer)
    return list(parts.values())
