"""Paddle on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import Tensor, nn

from expkit.core.batch import Batch
from expkit.core.binding import Binding, own_loss_or
from expkit.core.driver import Driver, ParameterAverage, StateTree
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.core.host_memory import HOST_MEMORY
from expkit.core.loss_scale import LossScale
from expkit.core.loss_term import LossTerm, losses_by_sample, sum_losses
from expkit.core.seeding import derive_seed, seed_host, untouched_host_rng
from expkit.drivers.paddle.average import PaddleParameterAverage
from expkit.drivers.paddle.device import find_device, to_device
from expkit.drivers.paddle.filled import Filled
from expkit.drivers.paddle.gradients import clip
from expkit.drivers.paddle.losses import loss_function
from expkit.drivers.paddle.optimizers import OptimizerSet
from expkit.drivers.paddle.parallel import Parallel, SingleDevice
from expkit.drivers.paddle.precision import autocast, check_precision, unscale
from expkit.drivers.paddle.state import (
    load_model_state,
    load_rng_state,
    model_state,
    rng_state,
    to_host,
    untouched_rng,
)
from expkit.losses import Loss


class PaddleDriver(Driver):
    """Runs a `paddle.nn.Layer` on one device.

    Args:
        device: ``auto`` (the first GPU, else the CPU), ``cpu``, ``gpu``, ``gpu:1``.
        precision: ``fp32``; on a GPU also ``bf16`` or ``fp16`` (auto_cast; fp16 with loss scaling).
        compile: turn the model into a static graph with paddle.jit.to_static.
        num_threads: CPU threads of Paddle; None leaves what OMP_NUM_THREADS or Paddle chose.
        loss_scale: first loss scale of fp16.
        loss_scale_growth_every: steps without overflow after which the loss scale is doubled.
        parallel: how ranks train together; None = there is one rank.

    Raises:
        ConfigError: an unknown device or precision.
    """

    framework = "paddle"

    def __init__(
        self,
        device: str = "auto",
        precision: str = "fp32",
        compile: bool = False,
        num_threads: int | None = None,
        loss_scale: float = 65536.0,
        loss_scale_growth_every: int = 2000,
        parallel: Parallel | None = None,
    ) -> None:
        self.device = find_device(device)
        self._parallel = parallel or SingleDevice()
        self.group = self._parallel.group
        self._precision = precision
        check_precision(precision, self.device)
        self._compile = compile
        self._num_threads = num_threads
        self._scale = (
            LossScale(loss_scale, loss_scale_growth_every) if precision == "fp16" else None
        )
        self.scales_loss = self._scale is not None
        self._model: nn.Layer | None = None
        self._optimizers = OptimizerSet(None, {})
        self._sync = True
        self._finite: bool | None = None
        self._token_share: Tensor | None = None
        self._filled = Filled()

    # -- life --------------------------------------------------------------------------------------

    def setup(self, seed: int) -> None:
        """See `Driver.setup`."""
        if self._num_threads is not None:
            paddle.base.core.set_num_threads(self._num_threads)
        paddle.set_device(self.device)
        stream = derive_seed(seed, "rank", self.rank)
        seed_host(stream)
        paddle.seed(stream)

    def shutdown(self) -> None:
        """See `Driver.shutdown`."""
        self._model = None
        self._optimizers = OptimizerSet(None, {})
        HOST_MEMORY.release()

    def prepare(
        self, model: Any, optimizers: Any, loss: Any, binding: Binding | None = None
    ) -> None:
        """See `Driver.prepare`."""
        if not isinstance(model, nn.Layer):
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            message = f"is {kind}; driver=paddle needs a paddle.nn.Layer"
            raise ConfigError([Problem("model", message)])
        self._model = model = self._parallel.place(model)
        binding = binding or Binding()
        parameters = {} if optimizers is None else dict(model.named_parameters())
        self._optimizers = OptimizerSet(optimizers, parameters)
        train, evaluate = self._parallel.training, self._parallel.evaluation
        self._train_call = autocast(train(model, binding), self._precision)
        self._evaluate_call = autocast(evaluate(model, binding), self._precision)
        by_sample = loss_function(loss) if isinstance(loss, Loss) else loss
        self._has_loss = loss is not None
        self._loss_by_sample = autocast(own_loss_or(by_sample), self._precision)
        if self._compile:
            paddle.jit.to_static(model)  # in place, and after its signature was read
        model.train()

    @property
    def optimizer_names(self) -> tuple[str, ...]:
        """See `Driver.optimizer_names`."""
        return tuple(self._optimizers.names)

    # -- the step ----------------------------------------------------------------------------------

    def forward(self, batch: Batch, sync: bool) -> Mapping[str, Any]:
        """See `Driver.forward`."""
        self._sync = sync
        self._parallel.begin(sync)
        self._fields = to_device(batch.fields, self.device)
        outputs: Mapping[str, Any] = self._train_call(self._fields)
        return outputs

    def loss(self, outputs: Mapping[str, Any], batch: Batch) -> LossTerm:
        """See `Driver.loss`."""
        values, weights = self._loss_by_sample(outputs, self._fields)
        if batch.weights is None:
            return LossTerm(values, weights, batch.size if weights is None else None)
        samples = paddle.to_tensor(batch.weights)
        if weights is not None:
            per_token = samples.reshape([-1, *[1] * (weights.ndim - 1)])
            return LossTerm(values, weights * per_token, None)
        return LossTerm(values, samples if values.ndim else None, batch.size)

    def backward(self, loss: LossTerm, scale: float) -> None:
        """See `Driver.backward`."""
        values, weights = loss.values, loss.weights
        scaled = scale * self._parallel.loss_factor
        if self._scale is not None:
            scaled *= self._scale.value
        if weights is not None:
            cotangent = (weights * scaled).astype(values.dtype)
        elif values.ndim:
            cotangent = self._filled(values.shape, scaled, values)
        else:  # a mean counts as many times as there are samples
            cotangent = self._filled((), scaled * (loss.size or 0.0), values)
        paddle.autograd.backward([values], [cotangent])
        loss.values = values.detach()
        if loss.size is None:
            share = weights.detach().sum(dtype="float64") * scale
            self._token_share = share if self._token_share is None else self._token_share + share
        if self._sync:
            self._parallel.exchange(self._optimizers.parameters)
            if self._token_share is not None:
                self._normalise_by_tokens(self._token_share)
                self._token_share = None

    @paddle.no_grad()
    def _normalise_by_tokens(self, share: Tensor) -> None:
        """Divide by tokens in place of samples, by their ``share`` over the whole window."""
        total = self.all_reduce(share.numpy()).item()
        if total > 0:
            for gradient in self._gradients():
                gradient.scale_(1.0 / total)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._optimizers.parameters if p.grad is not None]

    def clip_gradients(self, max_norm: float | None = None, max_value: float | None = None) -> Any:
        """See `Driver.clip_gradients`."""
        self._unscale()
        return clip(self._gradients(), max_norm, max_value)

    def _unscale(self) -> None:
        """Take the loss scale out of the gradients, once in a step."""
        if self._scale is not None and self._finite is None:
            self._finite = unscale(self._gradients(), self._scale.value)

    def optimizer_step(self, factors: Sequence[float]) -> bool:
        """See `Driver.optimizer_step`."""
        applied = True
        if self._scale is not None:
            self._unscale()
            applied = bool(self._finite)
            self._scale.update(applied)
            self._finite = None
        if applied:
            self._optimizers.step(factors)
        self._optimizers.zero()
        return applied

    def discard_gradients(self) -> None:
        """See `Driver.discard_gradients`."""
        self._finite = None
        self._optimizers.zero()

    def read_losses(self, terms: Sequence[LossTerm]) -> NDArray[np.float64]:
        """See `Driver.read_losses`."""
        flat = paddle.concat([term.values.detach().reshape([-1]) for term in terms])
        values = to_host(flat).astype(np.float64)
        weighted = [
            term.weights.detach().reshape([-1]) for term in terms if term.weights is not None
        ]
        weights = to_host(paddle.concat(weighted)).astype(np.float64) if weighted else np.empty(0)
        return sum_losses(terms, values, weights)

    @paddle.no_grad()
    def evaluate_step(self, batch: Batch, needs: frozenset[str]) -> dict[str, NDArray[Any]]:
        """See `Driver.evaluate_step`."""
        model = self.unwrap()
        modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
        with untouched_host_rng(), untouched_rng():
            model.eval()
            try:
                fields = to_device(batch.fields, self.device)
                outputs = self._evaluate_call(fields)
                host = {
                    name: to_host(outputs[name])
                    for name in needs
                    if name in outputs and name != "loss"
                }
                if "loss" in needs and ("loss" in outputs or self._has_loss):
                    values, weights = self._loss_by_sample(outputs, fields)
                    own = None if weights is None else to_host(weights)
                    host |= losses_by_sample(to_host(values), own, len(batch.indices))
            finally:
                for layer, training in modes:
                    layer.training = training
        return host

    def learning_rates(self) -> dict[str, float]:
        """See `Driver.learning_rates`."""
        return self._optimizers.learning_rates()

    # -- state -------------------------------------------------------------------------------------

    def model_state(self) -> dict[str, NDArray[Any]]:
        """See `Driver.model_state`."""
        return model_state(self.unwrap())

    def load_model_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Driver.load_model_state`."""
        load_model_state(self.unwrap(), state)

    def state(self, copies: bool = True) -> StateTree:
        """See `Driver.state`."""
        is_main = self.rank == 0
        return {
            "model": model_state(self.unwrap(), copies) if is_main else {},
            "optimizer": self._optimizers.state(copies) if is_main else {},
            "scaler": self._scale.state() if self._scale else {},
            "rng": rng_state(),
        }

    def load_state(self, state: StateTree) -> None:
        """See `Driver.load_state`."""
        self.load_model_state(state["model"])
        self._optimizers.load_state(state["optimizer"])
        if self._scale is not None and state["scaler"]:
            self._scale.load_state(state["scaler"])
        if state["rng"]:
            load_rng_state(state["rng"])

    def linear_weights(self) -> tuple[str, ...]:
        """See `Driver.linear_weights`."""
        layers = self.unwrap().named_sublayers(include_self=True)
        return tuple(f"{path}.weight" for path, one in layers if isinstance(one, nn.Linear))

    def unwrap(self) -> nn.Layer:
        """See `Driver.unwrap`."""
        if self._model is None:
            raise DriverError("the driver holds no model: call prepare first")
        return self._model

    def average_parameters(self) -> ParameterAverage:
        """See `Driver.average_parameters`."""
        return PaddleParameterAverage(self.unwrap())

    def memory_bytes(self) -> int | None:
        """See `Driver.memory_bytes`."""
        return paddle.device.cuda.max_memory_allocated() if self.device != "cpu" else None
