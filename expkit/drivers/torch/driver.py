"""torch on one device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expkit.core.batch import Batch
from expkit.core.binding import Binding, own_loss_or
from expkit.core.driver import Driver, ParameterAverage, StateTree
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.core.host_memory import HOST_MEMORY
from expkit.core.loss_scale import LossScale
from expkit.core.loss_term import LossTerm, losses_by_sample, sum_losses
from expkit.core.seeding import derive_seed, seed_host, untouched_host_rng
from expkit.drivers.torch.average import TorchParameterAverage
from expkit.drivers.torch.device import find_device, to_device
from expkit.drivers.torch.losses import loss_function
from expkit.drivers.torch.optimizers import OptimizerSet
from expkit.drivers.torch.parallel import Parallel, SingleDevice
from expkit.drivers.torch.precision import autocast, check_precision, unscale
from expkit.drivers.torch.state import (
    load_model_state,
    load_rng_state,
    model_state,
    rng_state,
    state_tensors,
    to_host,
    untouched_rng,
)
from expkit.losses import Loss


class TorchDriver(Driver):
    """Runs a `torch.nn.Module` on one device.

    Args:
        device: ``auto`` (the first CUDA device, else the CPU), ``cpu``, ``cuda``, ``cuda:1``,
            ``mps``.
        precision: ``fp32``, ``bf16`` or ``fp16`` (autocast; fp16 with loss scaling).
        compile: compile the model with torch.compile; needs a C++ compiler on the CPU.
        num_threads: CPU threads of torch; None leaves what OMP_NUM_THREADS or torch chose.
        loss_scale: first loss scale of fp16.
        loss_scale_growth_every: steps without overflow after which the loss scale is doubled.
        parallel: how ranks train together; None = there is one rank.

    Raises:
        ConfigError: an unknown device or precision.
    """

    framework = "torch"

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
        self._device = find_device(device)
        self.device = str(self._device)
        self._parallel = parallel or SingleDevice()
        self._layout = self._parallel.layout
        self.group = self._parallel.group
        self._precision = precision
        check_precision(precision, self._device)
        self._compile = compile
        self._num_threads = num_threads
        self.scales_loss = precision == "fp16"
        self._scale = LossScale(loss_scale, loss_scale_growth_every) if self.scales_loss else None
        self._model: nn.Module | None = None
        self._optimizers = OptimizerSet(None, {})
        self._sync = True
        self._finite: bool | None = None
        self._token_share: Tensor | None = None

    # -- life --------------------------------------------------------------------------------------

    def setup(self, seed: int) -> None:
        """See `Driver.setup`."""
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)
        stream = derive_seed(seed, "rank", self.rank)
        seed_host(stream)
        torch.manual_seed(stream)

    def shutdown(self) -> None:
        """See `Driver.shutdown`."""
        self._model = None
        self._optimizers = OptimizerSet(None, {})
        HOST_MEMORY.release()

    def prepare(
        self, model: Any, optimizers: Any, loss: Any, binding: Binding | None = None
    ) -> None:
        """See `Driver.prepare`."""
        if not isinstance(model, nn.Module):
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            message = f"is {kind}; driver=torch needs a torch.nn.Module"
            raise ConfigError([Problem("model", message)])
        self._model = model = self._parallel.place(model, self._device)
        state_tensors(model)  # what cannot be saved is told before anything is trained
        if self._compile:
            model.compile()  # in place: parameter paths stay as they are
        binding = binding or Binding()
        self._layout.check(optimizers)
        parameters = {} if optimizers is None else self._layout.parameters(model)
        self._optimizers = OptimizerSet(optimizers, parameters)
        parallel, precision, kind = self._parallel, self._precision, self._device.type
        self._train_call = autocast(parallel.training(model, binding), precision, kind)
        self._evaluate_call = autocast(parallel.evaluation(model, binding), precision, kind)
        by_sample = loss_function(loss) if isinstance(loss, Loss) else loss
        mean = loss_function(loss, reduction="mean") if isinstance(loss, Loss) else loss
        self._has_loss = loss is not None
        self._loss_by_sample = autocast(own_loss_or(by_sample), precision, kind)
        self._mean_loss = autocast(own_loss_or(mean), precision, kind)
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
        self._fields = to_device(batch.fields, self._device)
        outputs: Mapping[str, Any] = self._train_call(self._fields)
        return outputs

    def loss(self, outputs: Mapping[str, Any], batch: Batch) -> LossTerm:
        """See `Driver.loss`."""
        if batch.weights is None:
            values, weights = self._mean_loss(outputs, self._fields)
            return LossTerm(values, weights, batch.size if weights is None else None)
        values, weights = self._loss_by_sample(outputs, self._fields)
        samples = torch.from_numpy(batch.weights).to(values.device)
        if weights is not None:
            per_token = samples.reshape(-1, *[1] * (weights.ndim - 1))
            return LossTerm(values, weights * per_token, None)
        return LossTerm(values, samples if values.ndim else None, batch.size)

    def backward(self, loss: LossTerm, scale: float) -> None:
        """See `Driver.backward`."""
        values, weights = loss.values, loss.weights
        scaled = scale * self._parallel.loss_factor * (self._scale.value if self._scale else 1.0)
        if weights is not None:
            total = (values * weights.to(values.dtype)).sum() * scaled
        elif values.ndim:
            total = values.sum() * scaled
        else:  # a mean counts as many times as there are samples
            factor = scaled * (loss.size or 0.0)
            total = values if math.isclose(factor, 1.0, rel_tol=1e-12) else values * factor
        self._parallel.backward(total)
        loss.values = values.detach()
        if loss.size is None:
            share = weights.detach().sum(dtype=torch.float64) * scale
            self._token_share = share if self._token_share is None else self._token_share + share
        if self._sync:
            self._parallel.exchange(self._optimizers.parameters)
            self._normalise_by_tokens()

    def _normalise_by_tokens(self) -> None:
        """Where the loss counts tokens: divide by those of the whole window, not by samples."""
        share, self._token_share = self._token_share, None
        if share is not None and (total := self.all_reduce(share.cpu().numpy()).item()) > 0:
            torch._foreach_mul_(self._gradients(), 1.0 / total)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._optimizers.parameters if p.grad is not None]

    def clip_gradients(self, max_norm: float | None = None, max_value: float | None = None) -> Any:
        """See `Driver.clip_gradients`."""
        self._unscale()
        gradients = self._gradients()
        norm = self._layout.norm(gradients)
        if max_norm is not None:
            nn.utils.clip_grads_with_norm_(self._optimizers.parameters, max_norm, norm)
        if max_value is not None:
            torch._foreach_clamp_min_(gradients, -max_value)
            torch._foreach_clamp_max_(gradients, max_value)
        return norm

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
        flat = torch.cat([term.values.detach().reshape(-1) for term in terms])
        values = to_host(flat).astype(np.float64)
        weighted = [term.weights.detach().reshape(-1) for term in terms if term.weights is not None]
        weights = to_host(torch.cat(weighted)).astype(np.float64) if weighted else np.empty(0)
        return sum_losses(terms, values, weights)

    @torch.no_grad()
    def evaluate_step(self, batch: Batch, needs: frozenset[str]) -> dict[str, NDArray[Any]]:
        """See `Driver.evaluate_step`."""
        model = self.unwrap()
        modes = [(module, module.training) for module in model.modules()]
        with untouched_host_rng(), untouched_rng(self._device):
            model.eval()
            try:
                fields = to_device(batch.fields, self._device)
                outputs = self._evaluate_call(fields)
                names = needs & outputs.keys() - {"loss"}
                host = {name: to_host(outputs[name]) for name in names}
                if "loss" in needs and ("loss" in outputs or self._has_loss):
                    values, weights = self._loss_by_sample(outputs, fields)
                    own = None if weights is None else to_host(weights)
                    host |= losses_by_sample(to_host(values), own, len(batch.indices))
            finally:
                for module, training in modes:
                    module.training = training
        return host

    def learning_rates(self) -> dict[str, float]:
        """See `Driver.learning_rates`."""
        return self._optimizers.learning_rates()

    # -- state -------------------------------------------------------------------------------------

    def model_state(self) -> dict[str, NDArray[Any]]:
        """See `Driver.model_state`."""
        tensors = self._layout.tensors(self.unwrap())
        return self._layout.gather(lambda: model_state(tensors), on_all=True)

    def load_model_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Driver.load_model_state`."""
        load_model_state(self._layout.tensors(self.unwrap()), self._layout.part(state))

    def state(self, copies: bool = True) -> StateTree:
        """See `Driver.state`."""
        gather, tensors = self._layout.gather, self._layout.tensors(self.unwrap())
        return {
            "model": gather(lambda: model_state(tensors, copies)),
            "optimizer": gather(lambda: self._optimizers.state(copies)),
            "scaler": self._scale.state() if self._scale else {},
            "rng": rng_state(self._device),
        }

    def load_state(self, state: StateTree) -> None:
        """See `Driver.load_state`."""
        self.load_model_state(state["model"])
        self._optimizers.load_state(self._layout.part(state["optimizer"]))
        if self._scale is not None and state["scaler"]:
            self._scale.load_state(state["scaler"])
        if state["rng"]:
            load_rng_state(state["rng"], self._device)

    def linear_weights(self) -> tuple[str, ...]:
        """See `Driver.linear_weights`."""
        modules = self.unwrap().named_modules(remove_duplicate=False)
        return tuple(f"{path}.weight" for path, one in modules if isinstance(one, nn.Linear))

    def unwrap(self) -> nn.Module:
        """See `Driver.unwrap`."""
        if self._model is None:
            raise DriverError("the driver holds no model: call prepare first")
        return self._model

    def average_parameters(self) -> ParameterAverage:
        """See `Driver.average_parameters`."""
        return TorchParameterAverage(self._layout, self.unwrap())

    def memory_bytes(self) -> int | None:
        """See `Driver.memory_bytes`."""
        is_cuda = self._device.type == "cuda"
        return torch.cuda.max_memory_allocated(self._device) if is_cuda else None
