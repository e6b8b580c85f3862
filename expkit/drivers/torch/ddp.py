"""torch on several ranks that each hold the whole model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from expkit.core.binding import Binding, Call
from expkit.drivers.replicas import (
    HIDDEN_STEP,
    check_gradient_sync,
    check_same_model,
    is_flat,
)
from expkit.drivers.torch.buffers import Buffers
from expkit.drivers.torch.driver import TorchDriver
from expkit.drivers.torch.exchange import GradientExchange
from expkit.drivers.torch.flat import FlatExchange
from expkit.drivers.torch.layout import Whole
from expkit.drivers.torch.native import NativeExchange, check_arguments
from expkit.drivers.torch.parallel import Parallel
from expkit.drivers.torch.process_group import ProcessGroup
from expkit.drivers.torch.rendezvous import device_of_rank, join
from expkit.launch.environment import find_place

log = logging.getLogger(__name__)


class TorchDDPDriver(TorchDriver):
    """Runs a `torch.nn.Module` on several ranks, each with the whole model and its own samples.

    Args:
        device: ``auto`` (a CUDA device for each rank where there are some, else the CPU), -1 for
            the same, ``cpu``, ``cuda``, or a list with one entry for each rank of this machine.
        precision, compile, num_threads, loss_scale, loss_scale_growth_every: see `TorchDriver`.
        backend: of torch.distributed; None = nccl on CUDA devices, else gloo.
        init_method: URL by which the ranks find each other; None = as their launcher says.
        timeout_s: how long a collective waits for the slowest rank.
        gradient_sync: ``flat`` (one buffer, one all-reduce after the last micro-batch), ``native``
            (DistributedDataParallel: bucket by bucket during the backward), or ``auto``: flat where
            unused parameters are looked for, or all gradients would fit into one bucket.
        find_unused_parameters: whether the loss may not depend on all parameters.
        data_parallel: arguments of DistributedDataParallel; ``auto`` is then native.

    Raises:
        ConfigError: options that are unknown, contradict each other or have no effect.
        DriverError: this process is no rank.
        RankError: the other ranks did not come.
    """

    def __init__(
        self,
        device: str | int | Sequence[int | str] = "auto",
        precision: str = "fp32",
        compile: bool = False,
        num_threads: int | None = None,
        loss_scale: float = 65536.0,
        loss_scale_growth_every: int = 2000,
        backend: str | None = None,
        init_method: str | None = None,
        timeout_s: float = 600.0,
        gradient_sync: str = "auto",
        find_unused_parameters: bool = False,
        data_parallel: Mapping[str, Any] | None = None,
    ) -> None:
        arguments = dict(data_parallel or {})
        check_gradient_sync(gradient_sync, ["driver.data_parallel"] if arguments else [])
        check_arguments(arguments)
        place = find_place()
        own = device_of_rank(device, place)
        group = join(place, own, backend, init_method, timeout_s)
        super().__init__(
            device=str(own),
            precision=precision,
            compile=compile,
            num_threads=num_threads,
            loss_scale=loss_scale,
            loss_scale_growth_every=loss_scale_growth_every,
            parallel=Replicated(group, gradient_sync, find_unused_parameters, arguments),
        )


class Replicated(Parallel):
    """Each rank has the whole model; gradients are summed.

    Args:
        group: the ranks.
        gradient_sync: ``auto``, ``flat`` or ``native``.
        find_unused: whether a parameter may be without gradient on some or all ranks.
        arguments: of the native wrapper.
    """

    def __init__(
        self,
        group: ProcessGroup,
        gradient_sync: str,
        find_unused: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        self.group: ProcessGroup = group
        self.layout = Whole(group)
        self.loss_factor = 1.0
        self._gradient_sync = gradient_sync
        self._find_unused = find_unused
        self._arguments = arguments

    def place(self, model: nn.Module, device: torch.device) -> nn.Module:
        """See `Parallel.place`."""
        if isinstance(model, DistributedDataParallel):
            inner: nn.Module = model.module
            if hasattr(inner, "train_step"):
                log.warning(HIDDEN_STEP)
            self._exchange: GradientExchange = NativeExchange(self.group, inner, model)
        else:
            inner = model.to(device)
            check_same_model(parts_of(inner), self.group)
            self.group.broadcast_tensors([*inner.parameters(), *inner.buffers()])
            self._exchange = self._choose(inner)
        self.loss_factor = self._exchange.loss_factor
        self._buffers = Buffers(inner, self.group)
        return inner

    def training(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.training`."""
        return self._exchange.training(model, binding)

    def evaluation(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.evaluation`; each rank evaluates by itself."""
        return binding.bind(model, "evaluate_step")

    def begin(self, sync: bool) -> None:
        """See `Parallel.begin`."""
        self._buffers.begin()
        self._exchange.begin(sync)

    def backward(self, total: Tensor) -> None:
        """See `Parallel.backward`."""
        self._exchange.backward(total)

    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """See `Parallel.exchange`."""
        self._buffers.follow(partial(self._exchange.exchange, parameters))

    def _choose(self, model: nn.Module) -> GradientExchange:
        size = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        if is_flat(self._gradient_sync, size, self._find_unused, bool(self._arguments)):
            return FlatExchange(self.group, model, self._find_unused)
        return NativeExchange(self.group, model, None, self._find_unused, self._arguments)


def parts_of(model: nn.Module) -> list[tuple[Any, ...]]:
    """A description of each parameter and buffer of a model, but for its numbers."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [(path, tuple(t.shape), str(t.dtype), t.requires_grad) for path, t in tensors]
