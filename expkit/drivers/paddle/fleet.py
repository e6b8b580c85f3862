"""Paddle on several ranks that each hold the whole model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import paddle
from paddle import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.errors import ConfigError, Problem
from expkit.drivers.paddle.buffers import Buffers
from expkit.drivers.paddle.driver import PaddleDriver
from expkit.drivers.paddle.flat import FlatExchange
from expkit.drivers.paddle.native import NativeExchange, check_arguments
from expkit.drivers.paddle.parallel import Parallel
from expkit.drivers.paddle.process_group import ProcessGroup
from expkit.drivers.paddle.rendezvous import device_of_rank, join
from expkit.drivers.paddle.strategy import check_fleet, looks_for_unused, wrapper_arguments
from expkit.drivers.replicas import (
    HIDDEN_STEP,
    GradientExchange,
    check_gradient_sync,
    check_same_model,
    is_flat,
)
from expkit.launch.environment import find_place

log = logging.getLogger(__name__)


class PaddleFleetDriver(PaddleDriver):
    """Runs a `paddle.nn.Layer` on several ranks, each with the whole model and its own samples.

    Args:
        device: ``auto`` (a GPU for each rank where there are some, else the CPU), -1 for the same,
            ``cpu``, ``gpu``, or a list with one entry for each rank of this machine.
        precision, compile, num_threads, loss_scale, loss_scale_growth_every: see `PaddleDriver`.
        backend: of paddle.distributed; None = nccl on GPUs, else gloo.
        timeout_s: how long ranks wait for the slowest of them.
        gradient_sync: ``flat`` (one buffer, one all-reduce after the last micro-batch), ``native``
            (`paddle.DataParallel`: bucket by bucket during the backward), or ``auto``: flat where
            unused parameters are looked for, or all gradients would fit into one bucket.
        find_unused_parameters: whether the loss may not depend on all parameters.
        data_parallel: arguments of `paddle.DataParallel`; ``auto`` is then native.
        fleet: ``is_collective`` (true), ``role_maker`` (null, or an object) and ``strategy``: what
            `paddle.distributed.fleet` is started with.

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
        timeout_s: float = 600.0,
        gradient_sync: str = "auto",
        find_unused_parameters: bool = False,
        data_parallel: Mapping[str, Any] | None = None,
        fleet: Mapping[str, Any] | None = None,
    ) -> None:
        options = dict(fleet or {})
        check_fleet(options)
        arguments = _wrapper_arguments(gradient_sync, dict(data_parallel or {}), options)
        find_unused = find_unused_parameters or looks_for_unused(options)
        place = find_place()
        own = device_of_rank(device, place)
        group = join(place, own, backend, options, timeout_s)
        super().__init__(
            device=own,
            precision=precision,
            compile=compile,
            num_threads=num_threads,
            loss_scale=loss_scale,
            loss_scale_growth_every=loss_scale_growth_every,
            parallel=Replicated(group, gradient_sync, find_unused, arguments),
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
        self.loss_factor = 1.0
        self._gradient_sync = gradient_sync
        self._find_unused = find_unused
        self._arguments = arguments

    def place(self, model: nn.Layer) -> nn.Layer:
        """See `Parallel.place`."""
        if isinstance(model, paddle.DataParallel):
            inner: nn.Layer = model._layers
            if hasattr(inner, "train_step"):
                log.warning(HIDDEN_STEP)
            self._exchange: GradientExchange = NativeExchange(self.group, inner, model)
        else:
            inner = model
            check_same_model(parts_of(inner), self.group)
            filled = [each for each in inner.buffers() if each._is_initialized()]
            self.group.broadcast_tensors([*inner.parameters(), *filled])
            self._exchange = self._choose(inner)
        self.loss_factor = self._exchange.loss_factor
        self._buffers = Buffers(inner, self.group)
        return inner

    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """See `Parallel.training`."""
        return self._exchange.training(model, binding)

    def evaluation(self, model: nn.Layer, binding: Binding) -> Call:
        """See `Parallel.evaluation`; each rank evaluates by itself."""
        return binding.bind(model, "evaluate_step")

    def begin(self, sync: bool) -> None:
        """See `Parallel.begin`."""
        self._buffers.begin()
        self._exchange.begin(sync)

    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """See `Parallel.exchange`."""
        self._buffers.follow(partial(self._exchange.exchange, parameters))

    def _choose(self, model: nn.Layer) -> GradientExchange:
        size = sum(p.size * p.element_size() for p in model.parameters() if not p.stop_gradient)
        if is_flat(self._gradient_sync, size, self._find_unused, bool(self._arguments)):
            return FlatExchange(self.group, model, self._find_unused)
        return NativeExchange(self.group, model, None, self._find_unused, self._arguments)


def parts_of(model: nn.Layer) -> list[tuple[Any, ...]]:
    """A description of each parameter and buffer of a model, but for its numbers."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [(path, list(t.shape), str(t.dtype), t.stop_gradient) for path, t in tensors]


def _wrapper_arguments(
    gradient_sync: str, arguments: dict[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of the native wrapper, from ``data_parallel`` and from fleet's strategy."""
    check_arguments(arguments)
    of_fleet = wrapper_arguments(options)
    keys = ["driver.data_parallel"] if arguments else []
    keys += ["driver.fleet.strategy"] if of_fleet else []
    check_gradient_sync(gradient_sync, keys)
    twice = [name for name in of_fleet if name in arguments]
    if twice:
        message = "is given in driver.fleet.strategy too; allowed: one of them"
        key = f"driver.data_parallel.{twice[0]}"
        raise ConfigError([Problem(key, message, f"~{key}")])
    return arguments | of_fleet
