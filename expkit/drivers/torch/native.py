"""Gradients summed by torch's DistributedDataParallel, bucket by bucket during the backward."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from expkit.core.binding import Binding, Call
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.drivers.replicas import names_of
from expkit.drivers.torch.exchange import (
    Agreement,
    GradientExchange,
    told_apart,
    unused_error,
)
from expkit.drivers.torch.process_group import ProcessGroup

_OURS = (
    "self",
    "module",
    "device_ids",
    "output_device",
    "dim",
    "process_group",
    "broadcast_buffers",
    "forward_sync_buffers",
    "find_unused_parameters",
    "init_sync",
)
_PARAMETERS = inspect.signature(DistributedDataParallel.__init__).parameters
_ALLOWED = tuple(name for name in _PARAMETERS if name not in _OURS)
# Buffers are no business of the wrapper; torch 2.13 has renamed the option that says so.
_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _PARAMETERS else "broadcast_buffers"

FORWARD_ONLY = ""
"""The step of a model that is called through its forward, whatever steps it has."""


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that DistributedDataParallel shall not get."""
    for name in arguments:
        if name not in _ALLOWED:
            key = f"driver.data_parallel.{name}"
            message = f"is no option; allowed: {', '.join(_ALLOWED)}"
            raise ConfigError([Problem(key, message, f"~{key}")])


class NativeExchange(GradientExchange):
    """Wraps the model in DistributedDataParallel, or takes the user's wrapper.

    The wrapper averages over the ranks; losses are therefore multiplied with their number.

    Args:
        group: the ranks.
        model: the plain model.
        wrapper: its user's wrapper; None = one is made, and made anew whenever parameters are
            frozen or trained again.
        find_unused: whether a parameter may be without gradient on some or all ranks.
        arguments: more arguments of DistributedDataParallel.
    """

    def __init__(
        self,
        group: ProcessGroup,
        model: nn.Module,
        wrapper: DistributedDataParallel | None = None,
        find_unused: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._group = group
        self._model = model
        self._wrapper = wrapper
        self._is_ours = wrapper is None
        self._agreement = Agreement(group, model)
        self._find_unused = find_unused if wrapper is None else wrapper.find_unused_parameters
        self._arguments = {"gradient_as_bucket_view": True, **(arguments or {})}
        self.loss_factor = float(
            group.world_size if wrapper is None else dist.get_world_size(wrapper.process_group)
        )

    def training(self, model: nn.Module, binding: Binding) -> Call:
        """See `GradientExchange.training`."""
        if not self._is_ours:
            return binding.bind(model, FORWARD_ONLY, call=self._wrapper)
        # The wrapper calls a forward: that of a shell reaches the model's own steps.
        self._shell = _Shell(model, binding.bind(model, "train_step"))
        return self._forward

    def begin(self, sync: bool) -> None:
        """See `GradientExchange.begin`; before a window's last forward the ranks agree."""
        if sync:
            self._agree()
        elif self._wrapper is not None and self._wrapper.static_graph:
            key = "driver.data_parallel.static_graph"
            message = "cannot be combined with micro-batches; allowed: trainer.accumulate=1"
            raise ConfigError([Problem(key, message, f"{key}=false")])
        if self._wrapper is None:
            self._wrap()
        assert self._wrapper is not None
        self._wrapper.require_backward_grad_sync = sync

    def backward(self, total: Tensor) -> None:
        """See `GradientExchange.backward`."""
        with told_apart(self._group, "sum of gradients"):
            total.backward()

    def exchange(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], notice: bool | None
    ) -> tuple[Sequence[Tensor], bool]:
        """See `GradientExchange.exchange`; gradients have been summed in the backward."""
        if not self._find_unused:
            unused = [p for p in parameters if p.requires_grad and p.grad is None]
            if unused:
                raise unused_error(names_of(self._model, unused), self._group.rank)
        for passenger in passengers:
            self._group.sum_tensor(passenger)
        self._agreement.answer()
        return passengers, notice is not None and self._group.any_rank(notice)

    def _forward(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._wrapper is not None
        with told_apart(self._group, "forward of the wrapped model"):
            outputs: Mapping[str, Any] = self._wrapper(fields)
        return outputs

    def _agree(self) -> None:
        if not self._agreement.reach():
            return
        if self._is_ours:
            self._wrapper = None
        elif not self._find_unused:
            raise DriverError(
                "parameters were frozen, or are trained again, after the model was wrapped: wrap "
                "it with find_unused_parameters=True, or hand over the plain model"
            )

    def _wrap(self) -> None:
        with self._group.told("wrapping the model"):
            options: dict[str, Any] = {
                "init_sync": False,  # all ranks have the same parameters already
                "find_unused_parameters": self._find_unused,
                _BUFFERS: False,
            }
            self._wrapper = DistributedDataParallel(self._shell, **options, **self._arguments)


class _Shell(nn.Module):
    """A model whose forward is a bound call of another."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.call(fields)
