"""The optimizers of a torch model.

The specs of `expkit.optimizers` call torch's fused update kernels directly: the arithmetic of
``torch.optim.Adam(fused=True)`` without the bookkeeping of ``torch.optim``, which costs several
times the update on a small model, and without ``torch._dynamo``, which the first ``torch.optim``
optimizer of a process imports (more than a second). Native optimizers are used as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from expkit.core.errors import CheckpointError, ConfigError, Problem
from expkit.core.state import check_same_accumulators, check_same_shape
from expkit.drivers.optimizer_set import OptimizerSetBase, ParameterGroup, Update, native_of
from expkit.drivers.torch.state import from_host, state_array
from expkit.optimizers import SGD, Adam, AdamW

_NOT_STATE = ("params", "lr")


class OptimizerSet(OptimizerSetBase):
    """The optimizers of a torch model, see `OptimizerSetBase`."""

    def zero(self) -> None:
        """Clear the gradients: there are none afterwards."""
        for parameter in self.parameters:
            parameter.grad = None

    def _trains(self, parameter: Tensor) -> bool:
        return parameter.requires_grad

    def _update(self, group: ParameterGroup, parameters: list[Tensor]) -> Update:
        spec = group.spec
        if isinstance(spec, SGD | Adam | AdamW):
            odd = [p for p in parameters if not p.is_floating_point()]
            if odd:
                message = f"cannot train parameters of type {odd[0].dtype}; allowed: real numbers"
                raise ConfigError([Problem(group.key, message)])
            if isinstance(spec, SGD):
                return _SGDUpdate(spec, group.paths, parameters)
            return _AdamUpdate(spec, group.paths, parameters)
        native = native_of(group, "torch", torch.optim.Optimizer, parameters)
        return _NativeUpdate(native, group.paths, parameters)


class _FusedUpdate(Update):
    """Keeps accumulators as lists of tensors, as the kernels take them."""

    def __init__(self, lr: float, paths: Sequence[str], parameters: list[Tensor]) -> None:
        self.paths = paths
        self.base_rates = [lr]
        self.parameters = parameters
        self.accumulators: dict[str, list[Tensor]] = {}
        # A kernel takes tensors of one device and one type.
        places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, parameter in enumerate(parameters):
            places.setdefault((parameter.device, parameter.dtype), []).append(index)
        self.places = list(places.values())

    def with_gradients(self) -> Iterator[tuple[int, list[int], list[Tensor], list[Tensor]]]:
        """For each place with gradients: its number, positions, parameters and gradients."""
        for number, place in enumerate(self.places):
            indices = place
            gradients: list[Any] = [self.parameters[i].grad for i in place]
            if any(gradient is None for gradient in gradients):
                indices = [i for i in place if self.parameters[i].grad is not None]
                gradients = [gradient for gradient in gradients if gradient is not None]
            if gradients:
                yield number, indices, _at(self.parameters, indices), gradients

    def state(self, copies: bool) -> dict[str, Any]:
        return {key: state_array(tensor, copies) for key, tensor in self._by_key().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        own = self._by_key()
        check_same_accumulators(own, state)
        for key, tensor in own.items():
            check_same_shape(key, tuple(tensor.shape), np.shape(state[key]), "optimizer")
            tensor.copy_(from_host(np.array(state[key])))

    def _by_key(self) -> dict[str, Tensor]:
        return {
            f"{path}/{name}": tensor
            for name, tensors in self.accumulators.items()
            for path, tensor in zip(self.paths, tensors, strict=True)
        }


class _SGDUpdate(_FusedUpdate):
    def __init__(self, spec: SGD, paths: Sequence[str], parameters: list[Tensor]) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.options: dict[str, Any] = {
            "weight_decay": spec.weight_decay,
            "momentum": spec.momentum,
            "dampening": 0.0,
            "nesterov": spec.nesterov,
            "maximize": False,
            "is_first_step": False,  # a buffer of zeros gives the same as none
        }
        self.buffers = [torch.zeros_like(p) for p in parameters] if spec.momentum else []
        if spec.momentum:
            self.accumulators["momentum_buffer"] = self.buffers

    @torch.no_grad()
    def step(self, factor: float) -> None:
        lr = self.base_rates[0] * factor
        for _, indices, parameters, gradients in self.with_gradients():
            buffers = _at(self.buffers, indices) if self.buffers else []
            torch._fused_sgd_(parameters, gradients, buffers, lr=lr, **self.options)


class _AdamUpdate(_FusedUpdate):
    def __init__(self, spec: Adam | AdamW, paths: Sequence[str], parameters: list[Tensor]) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.kernel: Any = torch._fused_adamw_ if isinstance(spec, AdamW) else torch._fused_adam_
        self.options: dict[str, Any] = {
            "beta1": spec.betas[0],
            "beta2": spec.betas[1],
            "weight_decay": spec.weight_decay,
            "eps": spec.eps,
            "amsgrad": False,
            "maximize": False,
        }
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]
        # Views into one tensor for each place: a single operation counts for all parameters.
        self.counts = [
            torch.zeros(len(place), device=parameters[place[0]].device) for place in self.places
        ]
        self.steps = list(parameters)
        for place, counts in zip(self.places, self.counts, strict=True):
            for index, step in zip(place, counts, strict=True):
                self.steps[index] = step
        self.accumulators |= {
            "exp_avg": self.means,
            "exp_avg_sq": self.squares,
            "step": self.steps,
        }

    @torch.no_grad()
    def step(self, factor: float) -> None:
        lr = self.base_rates[0] * factor
        for number, indices, parameters, gradients in self.with_gradients():
            steps = _at(self.steps, indices)
            if len(indices) == len(self.places[number]):
                self.counts[number].add_(1)
            else:
                torch._foreach_add_(steps, 1)
            self.kernel(
                parameters,
                gradients,
                _at(self.means, indices),
                _at(self.squares, indices),
                [],
                steps,
                lr=lr,
                **self.options,
            )


class _NativeUpdate(Update):
    """A torch optimizer that trains one group.

    Some optimizers keep numbers in their parameter groups: those that have changed since the start
    are state too, under the path of the group's first parameter.
    """

    def __init__(self, native: Any, paths: Sequence[str], parameters: list[Tensor]) -> None:
        self.native = native
        self.paths = paths
        self.base_rates = [float(group["lr"]) for group in native.param_groups]
        names = {id(p): path for path, p in zip(paths, parameters, strict=True)}
        self._order = [names[id(p)] for group in native.param_groups for p in group["params"]]
        self._first = [names[id(group["params"][0])] for group in native.param_groups]
        self._made = [self._options(group) for group in native.param_groups]
        self._factor = 1.0

    def step(self, factor: float) -> None:
        if factor != self._factor:
            for group, base in zip(self.native.param_groups, self.base_rates, strict=True):
                group["lr"] = base * factor
            self._factor = factor
        self.native.step()

    def state(self, copies: bool) -> dict[str, Any]:
        state = {
            f"{self._order[index]}/{name}": _leaf(value, f"{self._order[index]}/{name}", copies)
            for index, own in self.native.state_dict()["state"].items()
            for name, value in own.items()
        }
        for first, made, group in zip(
            self._first, self._made, self.native.param_groups, strict=True
        ):
            for name, value in self._options(group).items():
                if name not in made or not _equal(value, made[name]):
                    state[f"{first}/group.{name}"] = _leaf(value, f"{first}/group.{name}", copies)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        groups = self.native.state_dict()["param_groups"]
        positions = {path: index for index, path in enumerate(self._order)}
        parameters: dict[int, dict[str, Any]] = {}
        for key, value in state.items():
            path, _, name = key.rpartition("/")
            loaded = from_host(np.array(value)) if hasattr(value, "shape") else value
            if name.startswith("group."):
                groups[self._first.index(path)][name.removeprefix("group.")] = loaded
            else:
                parameters.setdefault(positions[path], {})[name] = loaded
        self.native.load_state_dict({"state": parameters, "param_groups": groups})

    def _options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in group.items() if name not in _NOT_STATE}


def _at(tensors: list[Tensor], indices: list[int]) -> list[Tensor]:
    """The tensors at ascending indices; the list itself where these are all."""
    if len(indices) == len(tensors):
        return tensors
    return [tensors[i] for i in indices]


def _leaf(value: Any, key: str, copies: bool) -> Any:
    """A host array, or a plain value as it is."""
    if isinstance(value, Tensor):
        return state_array(value, copies)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CheckpointError(
        f"optimizer state {key} is a {type(value).__name__}; allowed: tensors, numbers and text"
    )


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return bool(torch.equal(left, right))
    return type(left) is type(right) and bool(left == right)
