"""The reference updates: the formulas of `expkit.optimizers` in NumPy, as they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expkit.core.host_memory import HOST_MEMORY
from expkit.core.naming import name_of
from expkit.core.state import check_same_accumulators, check_same_shape
from expkit.drivers.optimizer_set import OptimizerSetBase, ParameterGroup, Update, refused
from expkit.optimizers import SGD, Adam, AdamW, Native

Array = NDArray[Any]


class Parameter(Protocol):
    """What an update needs of a parameter of `expkit.models.numpy`."""

    value: Array
    grad: Array | None
    trainable: bool


class OptimizerSet(OptimizerSetBase):
    """The optimizers of a NumPy model, see `OptimizerSetBase`."""

    def zero(self) -> None:
        """Clear the gradients: there are none afterwards."""
        for parameter in self.parameters:
            parameter.grad = None

    def _trains(self, parameter: Parameter) -> bool:
        return parameter.trainable

    def _update(self, group: ParameterGroup, parameters: list[Parameter]) -> Update:
        spec = group.spec
        if isinstance(spec, SGD):
            return _SGDUpdate(spec, group.paths, parameters)
        if isinstance(spec, Adam | AdamW):
            return _AdamUpdate(spec, group.paths, parameters)
        given = name_of(spec.optimizer if isinstance(spec, Native) else spec)
        raise refused(group, given, "numpy")


class _ArrayUpdate(Update):
    """Keeps accumulators as arrays, one of each name per parameter."""

    def __init__(self, lr: float, paths: Sequence[str], parameters: Sequence[Parameter]) -> None:
        self.paths = paths
        self.base_rates = [lr]
        self.parameters = parameters
        self.accumulators: dict[str, list[Array]] = {}

    def state(self, copies: bool) -> dict[str, Array]:
        own = self._by_key()
        return {key: HOST_MEMORY.copy(array) for key, array in own.items()} if copies else own

    def load_state(self, state: Mapping[str, Any]) -> None:
        own = self._by_key()
        check_same_accumulators(own, state)
        for key, array in own.items():
            check_same_shape(key, array.shape, np.shape(state[key]), "optimizer")
            array[...] = state[key]

    def _by_key(self) -> dict[str, Array]:
        return {
            f"{path}/{name}": array
            for name, arrays in self.accumulators.items()
            for path, array in zip(self.paths, arrays, strict=True)
        }


class _SGDUpdate(_ArrayUpdate):
    def __init__(self, spec: SGD, paths: Sequence[str], parameters: Sequence[Parameter]) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.spec = spec
        if spec.momentum:
            self.accumulators["momentum_buffer"] = [np.zeros_like(p.value) for p in parameters]

    def step(self, factor: float) -> None:
        spec, lr = self.spec, self.spec.lr * factor
        for i, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            direction = parameter.grad + spec.weight_decay * parameter.value
            if spec.momentum:
                velocity = self.accumulators["momentum_buffer"][i]
                velocity *= spec.momentum
                velocity += direction
                direction = direction + spec.momentum * velocity if spec.nesterov else velocity
            parameter.value -= lr * direction


class _AdamUpdate(_ArrayUpdate):
    def __init__(
        self, spec: Adam | AdamW, paths: Sequence[str], parameters: Sequence[Parameter]
    ) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.spec = spec
        self.steps = [np.zeros((), np.int64) for _ in parameters]
        self.means = [np.zeros_like(p.value) for p in parameters]
        self.squares = [np.zeros_like(p.value) for p in parameters]
        self.accumulators |= {
            "step": self.steps,
            "exp_avg": self.means,
            "exp_avg_sq": self.squares,
        }

    def step(self, factor: float) -> None:
        spec, lr = self.spec, self.spec.lr * factor
        beta1, beta2 = spec.betas
        decoupled = isinstance(spec, AdamW)
        for parameter, step, mean, square in zip(
            self.parameters, self.steps, self.means, self.squares, strict=True
        ):
            if parameter.grad is None:
                continue
            gradient = parameter.grad
            if decoupled:
                parameter.value *= 1 - lr * spec.weight_decay
            else:
                gradient = gradient + spec.weight_decay * parameter.value
            step += 1
            mean *= beta1
            mean += (1 - beta1) * gradient
            square *= beta2
            square += (1 - beta2) * gradient * gradient
            root = np.sqrt(square) / math.sqrt(1 - beta2 ** int(step)) + spec.eps
            parameter.value -= lr / (1 - beta1 ** int(step)) * mean / root
