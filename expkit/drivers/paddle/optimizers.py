"""The optimizers of a Paddle model.

The specs of `expkit.optimizers` call Paddle's update kernels directly, all parameters at once where
there is such a kernel: the arithmetic of ``paddle.optimizer`` without its bookkeeping, which costs
several times the update on a small model. Native optimizers are used as they are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, _C_ops
from paddle.base.layer_helper import LayerHelper

from expkit.core.errors import ConfigError, Problem
from expkit.core.state import check_same_accumulators, check_same_shape
from expkit.drivers.optimizer_set import OptimizerSetBase, ParameterGroup, Update, native_of
from expkit.drivers.paddle.state import from_host, state_array
from expkit.optimizers import SGD, Adam, AdamW

Tensors = list[Tensor]

_kernels: Any = _C_ops  # Paddle's annotations know no optional tensors


class OptimizerSet(OptimizerSetBase):
    """The optimizers of a Paddle model, see `OptimizerSetBase`."""

    def zero(self) -> None:
        """Clear the gradients: there are none afterwards."""
        for parameter in self.parameters:
            parameter.clear_gradient(False)  # True would leave zeros behind

    def _trains(self, parameter: Tensor) -> bool:
        return not parameter.stop_gradient

    def _update(self, group: ParameterGroup, parameters: list[Tensor]) -> Update:
        spec = group.spec
        if isinstance(spec, SGD | Adam | AdamW):
            odd = [p for p in parameters if p.dtype not in (paddle.float32, paddle.float64)]
            if odd:
                message = f"cannot train parameters of {odd[0].dtype}; allowed: float32, float64"
                raise ConfigError([Problem(group.key, message)])
            if isinstance(spec, SGD):
                return _SGDUpdate(spec, group.paths, parameters)
            return _AdamUpdate(spec, group.paths, parameters)
        kind = paddle.optimizer.Optimizer
        native = native_of(group, "paddle", kind, parameters=parameters)
        return _NativeUpdate(native, group.paths, parameters, group.key)


class _TensorUpdate(Update):
    """Has its accumulators as tensors."""

    @abstractmethod
    def accumulators(self) -> Mapping[str, Tensor]:
        """The tensors by ``<path>/<accumulator>``."""

    def state(self, copies: bool) -> dict[str, Any]:
        return {key: state_array(tensor, copies) for key, tensor in self.accumulators().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        own = self.accumulators()
        check_same_accumulators(own, state)
        for key, tensor in own.items():
            check_same_shape(key, tuple(tensor.shape), np.shape(state[key]), "optimizer")
            tensor.set_value(from_host(np.asarray(state[key])).astype(tensor.dtype))


class _KernelUpdate(_TensorUpdate):
    """Keeps accumulators as lists of tensors, as the kernels take them."""

    def __init__(self, lr: float, paths: Sequence[str], parameters: list[Tensor]) -> None:
        self.paths = paths
        self.base_rates = [lr]
        self.parameters = parameters
        self.lists: dict[str, list[Tensor]] = {}
        self._factor = math.nan
        self._rates: dict[Any, Tensor] = {}
        # A kernel takes tensors of one type.
        places: dict[Any, list[int]] = {}
        for index, parameter in enumerate(parameters):
            places.setdefault(parameter.dtype, []).append(index)
        self._places = places

    def accumulators(self) -> dict[str, Tensor]:
        return {
            f"{path}/{name}": tensor
            for name, tensors in self.lists.items()
            for path, tensor in zip(self.paths, tensors, strict=True)
        }

    @paddle.no_grad()
    def step(self, factor: float) -> None:
        lr = self.base_rates[0] * factor
        if factor != self._factor:
            self._rates = {dtype: paddle.full([], lr, dtype) for dtype in self._places}
            self._factor = factor
        for dtype, place in self._places.items():
            indices = place
            parameters = [self.parameters[i] for i in place]
            gradients: list[Any] = [parameter.grad for parameter in parameters]
            if any(gradient is None for gradient in gradients):
                indices = [i for i in place if self.parameters[i].grad is not None]
                parameters = [self.parameters[i] for i in indices]
                gradients = [gradient for gradient in gradients if gradient is not None]
            if gradients:
                self.apply(indices, parameters, gradients, lr, self._rates[dtype])

    @abstractmethod
    def apply(
        self, indices: list[int], parameters: Tensors, gradients: Tensors, lr: float, rate: Tensor
    ) -> None:
        """Update the parameters at ``indices``; ``rate`` is the learning rate as a tensor."""


class _SGDUpdate(_KernelUpdate):
    def __init__(self, spec: SGD, paths: Sequence[str], parameters: list[Tensor]) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.spec = spec
        self.velocities = [paddle.zeros_like(p) for p in parameters] if spec.momentum else []
        if spec.momentum:
            self.lists["velocity"] = self.velocities

    def apply(
        self, indices: list[int], parameters: Tensors, gradients: Tensors, lr: float, rate: Tensor
    ) -> None:
        spec, count = self.spec, len(indices)
        if spec.momentum:
            _kernels.merged_momentum_(
                parameters,
                gradients,
                [self.velocities[i] for i in indices],
                [rate] * count,
                None,
                spec.momentum,
                spec.nesterov,
                ["l2_decay"] * count if spec.weight_decay else [],
                [spec.weight_decay] * count if spec.weight_decay else [],
                False,
                1.0,
            )
            return
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if spec.weight_decay:  # without momentum L2 in the gradient is this
                parameter.scale_(1 - lr * spec.weight_decay)
            _kernels.sgd_(parameter, rate, gradient, None, False)


class _AdamUpdate(_KernelUpdate):
    def __init__(self, spec: Adam | AdamW, paths: Sequence[str], parameters: list[Tensor]) -> None:
        super().__init__(spec.lr, paths, parameters)
        self.spec = spec
        self.means = [paddle.zeros_like(p) for p in parameters]
        self.squares = [paddle.zeros_like(p) for p in parameters]
        # The kernel keeps the powers of the betas itself, on the host.
        self.powers = [
            [paddle.to_tensor([beta], p.dtype, paddle.CPUPlace()) for p in parameters]
            for beta in spec.betas
        ]
        self.lists |= {
            "moment1": self.means,
            "moment2": self.squares,
            "beta1_pow_acc": self.powers[0],
            "beta2_pow_acc": self.powers[1],
        }

    def apply(
        self, indices: list[int], parameters: Tensors, gradients: Tensors, lr: float, rate: Tensor
    ) -> None:
        spec, decay = self.spec, self.spec.weight_decay
        if decay and isinstance(spec, AdamW):
            for parameter in parameters:
                parameter.scale_(1 - lr * decay)
        elif decay:
            pairs = zip(parameters, gradients, strict=True)
            gradients = [gradient + decay * parameter for parameter, gradient in pairs]
        _kernels.merged_adam_(
            parameters,
            gradients,
            [rate] * len(indices),
            [self.means[i] for i in indices],
            [self.squares[i] for i in indices],
            None,
            [self.powers[0][i] for i in indices],
            [self.powers[1][i] for i in indices],
            None,
            *spec.betas,
            spec.eps,
            False,
            False,
            False,
        )


class _NativeUpdate(_TensorUpdate):
    """A Paddle optimizer that trains one group.

    Paddle keys its own state by generated names, which differ when another model was built before;
    here it is read from and written to the accumulators themselves, by parameter path.
    """

    def __init__(
        self, native: Any, paths: Sequence[str], parameters: list[Tensor], key: str
    ) -> None:
        if not isinstance(native._learning_rate, float):
            message = "has a scheduler as its learning_rate; it needs a number"
            hint = "schedule={_target_:expkit.drivers.paddle.schedules.NativeSchedule,...}"
            raise ConfigError([Problem(key, message, hint)])
        self.native = native
        self.paths = paths
        self.base_rates = [native.get_lr()]
        self._names = {p.name: path for path, p in zip(paths, parameters, strict=True)}
        self._factor = 1.0
        # Made now, not in the first step, so that a state can be loaded before it.
        native.helper = LayerHelper(type(native).__name__)
        native._create_accumulators(paddle.static.default_main_program().global_block(), parameters)

    def accumulators(self) -> dict[str, Tensor]:
        masters = getattr(self.native, "_master_weights", {})
        names = self._names | {masters[name].name: self._names[name] for name in masters}
        own = {
            f"{names[name]}/{accumulator}": tensor
            for accumulator, tensors in self.native._accumulators.items()
            for name, tensor in tensors.items()
        }
        return own | {f"{self._names[n]}/master_weight": tensor for n, tensor in masters.items()}

    def step(self, factor: float) -> None:
        if factor != self._factor:
            self.native.set_lr(self.base_rates[0] * factor)
            self._factor = factor
        self.native.step()
