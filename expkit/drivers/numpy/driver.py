"""NumPy on the CPU: small, slow and plain; the reference for the drivers that use a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.collective import Collective, SingleProcess
from expkit.core.driver import Driver, ParameterAverage, StateTree
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.core.host_memory import HOST_MEMORY
from expkit.core.loss_term import LossTerm, losses_by_sample, sum_losses
from expkit.core.seeding import (
    derive_seed,
    host_rng_state,
    load_host_rng_state,
    seed_host,
    untouched_host_rng,
)
from expkit.core.state import check_same_paths, check_same_shape
from expkit.drivers.numpy.losses import loss_function, loss_gradient
from expkit.drivers.numpy.optimizers import OptimizerSet

Array = NDArray[Any]

# A loss that is not finite ends the run with an error of its own; NumPy's warnings would only come
# before it.
_without_warnings = np.errstate(over="ignore", invalid="ignore", divide="ignore")


class NumpyDriver(Driver):
    """Runs a NumPy model: it has ``forward``, ``backward`` and ``named_parameters``.

    Args:
        device: ``auto`` or ``cpu``.
        precision: ``fp32``.

    Raises:
        ConfigError: another device or precision.
    """

    framework = "numpy"
    device = "cpu"

    def __init__(self, device: str = "auto", precision: str = "fp32") -> None:
        problems = []
        if device not in ("auto", "cpu"):
            message = f"is {device!r}; NumPy computes on the CPU only"
            problems.append(Problem("driver.device", message, "driver.device=cpu"))
        if precision != "fp32":
            message = f"is {precision!r}; driver=numpy computes in fp32 only"
            problems.append(Problem("driver.precision", message, "driver.precision=fp32"))
        if problems:
            raise ConfigError(problems)
        self.group: Collective = SingleProcess()
        self._model: Any = None
        self._optimizers = OptimizerSet(None, {})
        self._loss_spec: Any = None
        self._token_share: float | None = None
        self._sync = True

    # -- life --------------------------------------------------------------------------------------

    def setup(self, seed: int) -> None:
        """See `Driver.setup`."""
        self._stream = derive_seed(seed, "rank", self.rank)
        seed_host(self._stream)

    def shutdown(self) -> None:
        """See `Driver.shutdown`."""
        self._model = None
        self._optimizers = OptimizerSet(None, {})
        HOST_MEMORY.release()

    def prepare(
        self, model: Any, optimizers: Any, loss: Any, binding: Binding | None = None
    ) -> None:
        """See `Driver.prepare`."""
        lacking = [
            name for name in ("forward", "backward", "named_parameters") if not hasattr(model, name)
        ]
        if lacking:
            message = (
                f"is {type(model).__module__}.{type(model).__qualname__} without "
                f"{', '.join(lacking)}; driver=numpy needs an expkit.models.numpy.Module"
            )
            raise ConfigError([Problem("model", message, "model=mlp")])
        if loss is None:
            message = "is none; driver=numpy needs a configured loss, whose gradient it knows"
            raise ConfigError([Problem("loss", message, "loss=cross_entropy")])
        self._model = model
        self._loss_spec = loss
        self._optimizers = OptimizerSet(
            optimizers, {} if optimizers is None else model.named_parameters()
        )
        self._loss_function = loss_function(loss)
        self._loss_gradient = loss_gradient(loss)
        self._call = (binding or Binding()).bind(model, "train_step", model.forward)
        model.training = True

    @property
    def optimizer_names(self) -> tuple[str, ...]:
        """See `Driver.optimizer_names`."""
        return tuple(self._optimizers.names)

    # -- the step ----------------------------------------------------------------------------------

    @_without_warnings
    def forward(self, batch: Batch, sync: bool) -> Mapping[str, Any]:
        """See `Driver.forward`."""
        self._sync = sync
        self._fields = batch.fields
        self._outputs = self._call(batch.fields)
        return self._outputs

    @_without_warnings
    def loss(self, outputs: Mapping[str, Any], batch: Batch) -> LossTerm:
        """See `Driver.loss`."""
        values, weights = self._loss_function(outputs, self._fields)
        if batch.weights is None:
            return LossTerm(values, weights, batch.size if weights is None else None)
        if weights is not None:
            per_token = batch.weights.reshape(-1, *[1] * (weights.ndim - 1))
            return LossTerm(values, weights * per_token, None)
        return LossTerm(values, batch.weights, batch.size)

    @_without_warnings
    def backward(self, loss: LossTerm, scale: float) -> None:
        """See `Driver.backward`."""
        weights = np.ones_like(loss.values) if loss.weights is None else loss.weights
        cotangent = (weights * scale).astype(loss.values.dtype)
        gradient = self._loss_gradient(self._outputs, self._fields, cotangent)
        self._model.backward(gradient)
        if loss.size is None:
            self._token_share = (self._token_share or 0.0) + float(
                weights.sum(dtype=np.float64)
            ) * scale
        if self._sync and self._token_share is not None:
            total = self.all_reduce(np.array(self._token_share)).item()
            self._token_share = None
            if total > 0:
                for gradient in self._gradients():
                    gradient /= total

    def _gradients(self) -> list[Array]:
        return [p.grad for p in self._optimizers.parameters if p.grad is not None]

    @_without_warnings
    def clip_gradients(self, max_norm: float | None = None, max_value: float | None = None) -> Any:
        """See `Driver.clip_gradients`."""
        gradients = self._gradients()
        norm = float(np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in gradients)))
        if max_norm is not None and norm > max_norm:
            for gradient in gradients:
                gradient *= max_norm / (norm + 1e-6)
        if max_value is not None:
            for gradient in gradients:
                np.clip(gradient, -max_value, max_value, out=gradient)
        return norm

    @_without_warnings
    def optimizer_step(self, factors: Sequence[float]) -> bool:
        """See `Driver.optimizer_step`."""
        self._optimizers.step(factors)
        self._optimizers.zero()
        return True

    def discard_gradients(self) -> None:
        """See `Driver.discard_gradients`."""
        self._optimizers.zero()

    @_without_warnings
    def read_losses(self, terms: Sequence[LossTerm]) -> NDArray[np.float64]:
        """See `Driver.read_losses`."""
        values = np.concatenate([np.ravel(term.values) for term in terms]).astype(np.float64)
        weighted = [np.ravel(term.weights) for term in terms if term.weights is not None]
        weights = np.concatenate(weighted).astype(np.float64) if weighted else np.empty(0)
        return sum_losses(terms, values, weights)

    @_without_warnings
    def evaluate_step(self, batch: Batch, needs: frozenset[str]) -> dict[str, Array]:
        """See `Driver.evaluate_step`."""
        model = self.unwrap()
        was_training = model.training
        with untouched_host_rng():
            model.training = False
            try:
                outputs = self._call(batch.fields)
                host = {name: np.array(outputs[name]) for name in needs if name in outputs}
                if "loss" in needs:
                    values, weights = self._loss_function(outputs, batch.fields)
                    host |= losses_by_sample(values, weights, len(batch.indices))
            finally:
                model.training = was_training
        return host

    def learning_rates(self) -> dict[str, float]:
        """See `Driver.learning_rates`."""
        return self._optimizers.learning_rates()

    # -- state -------------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, Array]:
        model = self.unwrap()
        parameters = {path: parameter.value for path, parameter in model.named_parameters().items()}
        tensors: dict[str, Array] = parameters | model.named_buffers()
        return tensors

    def model_state(self) -> dict[str, Array]:
        """See `Driver.model_state`."""
        return {path: HOST_MEMORY.copy(array) for path, array in self._tensors().items()}

    def load_model_state(self, state: Mapping[str, Array]) -> None:
        """See `Driver.load_model_state`."""
        own = self._tensors()
        check_same_paths(own, state)
        for path, array in own.items():
            check_same_shape(path, array.shape, state[path].shape)
            array[...] = state[path]

    def state(self, copies: bool = True) -> StateTree:
        """See `Driver.state`."""
        return {
            "model": self.model_state() if copies else self._tensors(),
            "optimizer": self._optimizers.state(copies),
            "scaler": {},
            "rng": host_rng_state() | {"model": self.unwrap().rng.bit_generator.state},
        }

    def load_state(self, state: StateTree) -> None:
        """See `Driver.load_state`."""
        self.load_model_state(state["model"])
        self._optimizers.load_state(state["optimizer"])
        if state["rng"]:
            load_host_rng_state(state["rng"])
            self.unwrap().rng.bit_generator.state = state["rng"]["model"]

    def linear_weights(self) -> tuple[str, ...]:
        """See `Driver.linear_weights`."""
        parameters = self.unwrap().named_parameters().items()
        return tuple(path for path, parameter in parameters if parameter.kind == "linear")

    def unwrap(self) -> Any:
        """See `Driver.unwrap`."""
        if self._model is None:
            raise DriverError("the driver holds no model: call prepare first")
        return self._model

    def average_parameters(self) -> ParameterAverage:
        """See `Driver.average_parameters`."""
        return NumpyParameterAverage(self.unwrap().named_parameters())

    def memory_bytes(self) -> int | None:
        """See `Driver.memory_bytes`."""
        return None


class NumpyParameterAverage(ParameterAverage):
    """Follows the parameters of a NumPy model."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = {path: p.value for path, p in parameters.items() if p.trainable}
        self._average = {path: value.copy() for path, value in self._parameters.items()}

    def update(self, decay: float) -> None:
        """See `ParameterAverage.update`."""
        for path, average in self._average.items():
            average += (1.0 - decay) * (self._parameters[path] - average)

    def swap(self) -> None:
        """See `ParameterAverage.swap`."""
        for path, value in self._parameters.items():
            kept = value.copy()
            value[...] = self._average[path]
            self._average[path] = kept

    def state(self) -> dict[str, Array]:
        """See `ParameterAverage.state`."""
        return {path: HOST_MEMORY.copy(array) for path, array in self._average.items()}

    def parameters(self) -> dict[str, Array]:
        """See `ParameterAverage.parameters`."""
        return {path: HOST_MEMORY.copy(value) for path, value in self._parameters.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """See `ParameterAverage.load_state`."""
        check_same_paths(self._average, state)
        for path, array in self._average.items():
            array[...] = state[path]
