"""torch on several ranks that each hold a shard of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from expkit.core.binding import Binding, Call
from expkit.core.errors import ConfigError, Problem
from expkit.drivers.replicas import check_same_model
from expkit.drivers.torch.buffers import Buffers
from expkit.drivers.torch.ddp import parts_of
from expkit.drivers.torch.driver import TorchDriver
from expkit.drivers.torch.exchange import Agreement, told_apart, unused_error
from expkit.drivers.torch.parallel import Parallel
from expkit.drivers.torch.process_group import ProcessGroup
from expkit.drivers.torch.rendezvous import device_of_rank, join
from expkit.drivers.torch.shards import Shards
from expkit.launch.environment import find_place


class TorchFSDPDriver(TorchDriver):
    """Runs a `torch.nn.Module` on several ranks, each with a shard of every parameter.

    Parameters are gathered unit by unit while they are needed (FSDP2, ``fully_shard``), and so are
    the gradients summed; optimizers see this rank's shards. Checkpoints are those of the other
    torch drivers.

    Args:
        device: see `TorchDDPDriver`.
        precision: ``fp32``, or ``bf16``: parameters are gathered, and computed with, in bfloat16;
            gradients are summed in float32.
        compile, num_threads: see `TorchDriver`.
        backend, init_method, timeout_s: see `TorchDDPDriver`.
        shard: patterns of the paths of the modules to gather as units besides the rest; ``auto`` =
            the blocks of which the model has several: what is in a ModuleList, and modules with
            children that a Sequential repeats.
        reshard_after_forward: whether units are released after the forward, and gathered again for
            the backward.

    Raises:
        ConfigError: options that are unknown or contradict each other.
        DriverError: this process is no rank.
        RankError: the other ranks did not come.
    """

    evaluates_together = True

    def __init__(
        self,
        device: str | int | Sequence[int | str] = "auto",
        precision: str = "fp32",
        compile: bool = False,
        num_threads: int | None = None,
        backend: str | None = None,
        init_method: str | None = None,
        timeout_s: float = 600.0,
        shard: str | Sequence[str] = "auto",
        reshard_after_forward: bool = True,
    ) -> None:
        if precision not in ("fp32", "bf16"):
            message = f"is {precision!r}; allowed with shards: fp32, bf16"
            raise ConfigError([Problem("driver.precision", message, "driver.precision=bf16")])
        if isinstance(shard, str) and shard != "auto":
            message = f"is {shard!r}; allowed: auto, or a list of patterns of module paths"
            raise ConfigError([Problem("driver.shard", message, f"driver.shard=[{shard}]")])
        place = find_place()
        own = device_of_rank(device, place)
        group = join(place, own, backend, init_method, timeout_s)
        super().__init__(
            device=str(own),
            compile=compile,
            num_threads=num_threads,
            parallel=Sharded(group, shard, reshard_after_forward, precision),
        )


class Sharded(Parallel):
    """Each rank has a shard of every parameter; gradients are summed.

    Args:
        group: the ranks.
        shard: see `TorchFSDPDriver`.
        reshard_after_forward: see `TorchFSDPDriver`.
        precision: ``fp32`` or ``bf16``.
    """

    def __init__(
        self,
        group: ProcessGroup,
        shard: str | Sequence[str],
        reshard_after_forward: bool,
        precision: str,
    ) -> None:
        self.group: ProcessGroup = group
        self.layout: Shards = Shards(group)
        self.loss_factor = 1.0
        self._shard = shard
        self._reshard = reshard_after_forward
        self._is_half = precision == "bf16"
        self._syncs = True

    def place(self, model: nn.Module, device: torch.device) -> nn.Module:
        """See `Parallel.place`; unit by unit, so that no device holds all of the model at once."""
        if isinstance(model, (DistributedDataParallel, FSDPModule)):
            message = "is wrapped already; driver=torch_fsdp takes the plain model"
            raise ConfigError([Problem("model", message)])
        check_same_model(parts_of(model), self.group)
        units = list(find_units(model, self._shard))
        self._shell: Any = _Shell(model)
        mesh = init_device_mesh(device.type, (self.group.world_size,))
        # Norms with running statistics, which are in float32, compute with float32.
        norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
        exact = norms if self._is_half else []
        for unit in (*exact, *reversed([unit for unit in units if unit not in exact]), self._shell):
            policy = MixedPrecisionPolicy()
            if self._is_half and unit not in exact:
                output = torch.float32 if unit is self._shell else None
                policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output)
            self._bring(unit, device)
            try:
                fully_shard(
                    unit,
                    mesh=mesh,
                    mp_policy=policy,
                    # The rest is needed first in the backward: it is never released for that.
                    reshard_after_forward=None if unit is self._shell else self._reshard,
                )
            except ValueError as error:
                problem = Problem("driver.shard", str(error), "driver.shard=[]")
                raise ConfigError([problem]) from error
        self._modules: list[Any] = [m for m in self._shell.modules() if isinstance(m, FSDPModule)]
        for module in self._modules:
            module.set_gradient_divide_factor(1.0)  # a sum, no mean
            module.set_force_sum_reduction_for_comms(True)
        self.layout.take(model)
        self._buffers = Buffers(model, self.group)
        self._agreement = Agreement(self.group, model)
        self._syncs = True
        return model

    def training(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.training`."""
        call = binding.bind(model, "train_step")

        def train(fields: Mapping[str, Any]) -> Mapping[str, Any]:
            with told_apart(self.group, "forward"):
                outputs: Mapping[str, Any] = self._shell(call, fields)
            return outputs

        return train

    def evaluation(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.evaluation`; a collective, as the parameters are gathered."""
        call = binding.bind(model, "evaluate_step")

        def evaluate(fields: Mapping[str, Any]) -> Mapping[str, Any]:
            with told_apart(self.group, "forward"):
                outputs: Mapping[str, Any] = self._shell(call, fields)
            # No backward releases them: what is gathered now would be out of date later.
            for module in self._modules:
                module.reshard()
            return outputs

        return evaluate

    def begin(self, sync: bool) -> None:
        """See `Parallel.begin`; before a window's last forward the ranks agree."""
        self._buffers.begin()
        if sync:
            self._agreement.reach()
        if sync != self._syncs:
            self._shell.set_requires_gradient_sync(sync)
            self._syncs = sync

    def backward(self, total: Tensor) -> None:
        """See `Parallel.backward`."""
        with told_apart(self.group, "backward"):
            total.backward()

    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """See `Parallel.exchange`; gradients have been summed in the backward."""
        unused = self.layout.take_gradients(parameters)
        if unused:
            hint = "driver=torch_ddp driver.find_unused_parameters=true"
            raise unused_error(unused, self.group.rank, hint)
        self._agreement.answer()
        self._buffers.follow(self._sum)

    def _sum(self, changes: Sequence[Tensor], notice: bool | None) -> tuple[Sequence[Tensor], bool]:
        """Sum the changes of buffers, which do not travel with gradients here."""
        for change in changes:
            self.group.sum_tensor(change)
        return changes, notice is not None and self.group.any_rank(notice)

    def _bring(self, unit: nn.Module, device: torch.device) -> None:
        """Bring what is not sharded yet to the device, with the values of rank 0.

        What is sharded is rows, so that parameters are stored row by row.
        """
        fresh = [t for t in chain(unit.parameters(), unit.buffers()) if not isinstance(t, DTensor)]
        types = {str(t.dtype) for t in fresh if isinstance(t, nn.Parameter)}
        if len(types) > 1:
            message = (
                f"leaves parameters of the types {', '.join(sorted(types))} in one unit; allowed: "
                "patterns by which each unit has one type"
            )
            raise ConfigError([Problem("driver.shard", message, "driver=torch_ddp")])
        for tensor in fresh:
            tensor.data = tensor.data.to(device).contiguous()
        self.group.broadcast_tensors(fresh)


class _Shell(nn.Module):
    """A model whose forward is any of its steps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, call: Call, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return call(fields)


def find_units(model: nn.Module, shard: str | Sequence[str]) -> Iterator[nn.Module]:
    """The modules that are gathered as units, outer before inner ones.

    Raises:
        ConfigError: a pattern that matches no module.
    """
    if isinstance(shard, str):
        yield from _blocks(model)
        return
    modules = {path: module for path, module in model.named_modules() if path}
    for pattern in shard:
        if not any(fnmatchcase(path, pattern) for path in modules):
            there = ", ".join(list(modules)[:8]) + (" ..." if len(modules) > 8 else "")
            message = f"has {pattern!r}, which matches no module; there are: {there}"
            raise ConfigError([Problem("driver.shard", message, "driver.shard=auto")])
    for path, module in modules.items():
        if any(fnmatchcase(path, pattern) for pattern in shard):
            yield module


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules of which there are several."""
    children = list(module.children())
    kinds = [type(child) for child in children]
    for child in children:
        is_repeated = isinstance(module, nn.ModuleList) or (
            isinstance(module, nn.Sequential)
            and kinds.count(type(child)) > 1
            and any(True for _ in child.children())
        )
        has_parameters = any(True for _ in child.parameters())
        if is_repeated and has_parameters and not isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _blocks(child)
