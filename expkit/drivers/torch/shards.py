"""A model of which each rank holds a shard: rows of every parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from expkit.core.errors import CheckpointError, ConfigError, Problem
from expkit.core.naming import name_of
from expkit.core.state import check_same_shape
from expkit.drivers.torch.layout import Layout
from expkit.drivers.torch.process_group import ProcessGroup
from expkit.drivers.torch.state import state_tensors
from expkit.optimizers import Native, Optimizer

_ELEMENTWISE = frozenset(
    {
        torch.optim.ASGD,
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
    }
)
"""Optimizers of torch that update each number by itself, so that a shard is enough."""


class Shards(Layout):
    """Rank r of W holds the r-th chunk of ceil(rows / W) rows of each parameter.

    What is trained are plain tensors that share the memory of the sharded parameters, so that
    optimizers, clipping and averages work as on one device.

    Args:
        group: the ranks.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._own: dict[str, Tensor] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._pairs: list[tuple[DTensor, Tensor]] = []

    def take(self, model: nn.Module) -> None:
        """Take the shards of a model whose parameters have been sharded."""
        by_parameter: dict[int, Tensor] = {}
        self._own, self._shapes, self._pairs = {}, {}, []
        for path, parameter in model.named_parameters(remove_duplicate=False):
            assert isinstance(parameter, DTensor)
            if id(parameter) not in by_parameter:
                with torch.no_grad():
                    local = parameter.to_local()
                own = nn.Parameter(local, requires_grad=parameter.requires_grad)
                by_parameter[id(parameter)] = own
                self._pairs.append((parameter, own))
            self._own[path] = by_parameter[id(parameter)]
            self._shapes[path] = tuple(parameter.shape)

    def take_gradients(self, parameters: Sequence[Tensor]) -> str:
        """Move the gradients of the sharded parameters to what is trained.

        Args:
            parameters: those that need a gradient, unless they are frozen.

        Returns:
            The paths of those that have none, as an error shows them.
        """
        needed = {id(parameter) for parameter in parameters}
        unused = []
        for sharded, own in self._pairs:
            gradient = sharded.grad
            if isinstance(gradient, DTensor):
                own.grad = gradient.to_local()
                sharded.grad = None
            elif sharded.requires_grad and id(own) in needed:
                unused.append(own)
        paths = {id(own): path for path, own in reversed(self._own.items())}
        shown = ", ".join(paths[id(own)] for own in unused[:5])
        return shown + (f" and {len(unused) - 5} more" if len(unused) > 5 else "")

    def check(self, optimizers: Any) -> None:
        """See `Layout.check`."""
        named = optimizers if isinstance(optimizers, Mapping) else {"": optimizers}
        for name, optimizer in named.items():
            if optimizer is None or isinstance(optimizer, Optimizer):
                continue
            given = optimizer.optimizer if isinstance(optimizer, Native) else optimizer
            kind = getattr(given, "func", given)
            if kind not in _ELEMENTWISE:
                there = ", ".join(sorted(each.__name__ for each in _ELEMENTWISE))
                message = (
                    f"is {name_of(given)}, which may look at whole matrices, while each rank has a "
                    f"shard; allowed: SGD, Adam, AdamW of expkit.optimizers; of torch: {there}"
                )
                key = f"optimizer.{name}" if name else "optimizer"
                raise ConfigError([Problem(key, message, "driver=torch_ddp")])

    def parameters(self, model: nn.Module) -> dict[str, Tensor]:
        """See `Layout.parameters`."""
        return {path: self._own[path] for path, _ in model.named_parameters()}

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """See `Layout.tensors`."""
        return {path: self._own.get(path, tensor) for path, tensor in state_tensors(model).items()}

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """See `Layout.norm`; a collective."""
        norms = torch._foreach_norm(gradients) if gradients else []
        parts = [norm.double().square() for norm in norms]
        total = torch.zeros((), dtype=torch.float64, device=self._group.device)
        total += sum(parts)
        self._group.sum_tensor(total)
        return total.sqrt().float()

    def gather(self, read: Callable[[], Mapping[str, Any]], on_all: bool = False) -> dict[str, Any]:
        """See `Layout.gather`."""
        return self._gathered(read(), on_all)

    def part(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Layout.part`."""
        part: dict[str, Any] = {}
        for key, value in state.items():
            if isinstance(value, Mapping):
                part[key] = self.part(value)
            elif (path := self._path(key)) is None or np.ndim(value) == 0:
                part[key] = value
            else:
                check_same_shape(key, self._shapes[path], np.shape(value))
                chunk = self._chunk(path)
                part[key] = value[self._group.rank * chunk : (self._group.rank + 1) * chunk]
        return part

    def _gathered(self, state: Mapping[str, Any], on_all: bool) -> dict[str, Any]:
        keeps = on_all or self._group.rank == 0
        whole: dict[str, Any] = {}
        for key, value in state.items():
            if isinstance(value, Mapping):
                found: Any = self._gathered(value, on_all)
            elif (path := self._path(key)) is None or np.ndim(value) == 0:
                found = value
            else:
                found = self._whole(key, path, value, on_all)
            if keeps:
                whole[key] = found
        return whole

    def _path(self, key: str) -> str | None:
        """The parameter that a key of a state belongs to; None for buffers and names."""
        if key in self._shapes:
            return key
        path = key.rpartition("/")[0]
        return path if path in self._shapes else None

    def _chunk(self, path: str) -> int:
        """How many rows each rank has, but for the last ones."""
        return -(-self._shapes[path][0] // self._group.world_size)

    def _whole(self, key: str, path: str, rows: Any, on_all: bool) -> Any:
        """All rows of an array, of which each rank has some; None where nobody asks for them."""
        shape, chunk = self._shapes[path], self._chunk(path)
        if rows.shape[1:] != shape[1:] or len(rows) > chunk:
            raise CheckpointError(
                f"{key} has the shape {rows.shape} on rank {self._group.rank}, which is no shard "
                f"of {shape}: it cannot be gathered"
            )
        padded = np.zeros((chunk, *shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        parts = self._group.gather_arrays(padded, on_all)
        return None if parts is None else np.concatenate(parts)[: shape[0]]
