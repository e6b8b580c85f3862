"""A driver without a framework, and the events of a run brought to one callback by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from expkit.core.batch import Batch
from expkit.core.collective import SingleProcess
from expkit.core.driver import Driver, ParameterAverage
from expkit.core.events import Context
from expkit.core.loss_term import LossTerm


class StubAverage(ParameterAverage):
    def __init__(self, parameters: dict[str, np.ndarray]) -> None:
        self.raw = parameters
        self.average = {path: array.copy() for path, array in parameters.items()}

    def update(self, decay: float) -> None:
        for path, average in self.average.items():
            average[...] = decay * average + (1 - decay) * self.raw[path]

    def swap(self) -> None:
        for path, average in self.average.items():
            kept = self.raw[path].copy()
            self.raw[path][...] = average
            average[...] = kept

    def state(self) -> dict[str, np.ndarray]:
        return {path: array.copy() for path, array in self.average.items()}

    def parameters(self) -> dict[str, np.ndarray]:
        return {path: array.copy() for path, array in self.raw.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        for path, array in self.average.items():
            array[...] = state[path]


def _unused(self: Driver, *args: Any, **kwargs: Any) -> Any:
    raise AssertionError("this verb of the driver is not for callbacks")


class _Verbless(Driver):
    """Refuses every verb."""


for _name in Driver.__abstractmethods__:
    setattr(_Verbless, _name, _unused)
_Verbless.__abstractmethods__ = frozenset()


class StubDriver(_Verbless):
    """Parameters are two arrays, losses are host numbers."""

    def __init__(self) -> None:
        self.framework, self.device, self.group = "numpy", "cpu", SingleProcess()
        self.parameters = {"layer.weight": np.zeros(2), "layer.bias": np.zeros(1)}
        self.buffers = {"norm.mean": np.zeros(3)}
        self.clipped: list[dict[str, float]] = []
        self.rates = {"lr": 0.5}
        self.memory: int | None = None
        self.num_reads = 0

    def clip_gradients(
        self, max_norm: float | None = None, max_value: float | None = None
    ) -> float:
        self.clipped.append({"max_norm": max_norm, "max_value": max_value})
        return 0.0

    def read_losses(self, terms: list[LossTerm]) -> np.ndarray:
        self.num_reads += 1
        return np.array([[np.sum(term.values), term.size] for term in terms], dtype=np.float64)

    def learning_rates(self) -> dict[str, float]:
        return dict(self.rates)

    def model_state(self) -> dict[str, np.ndarray]:
        return {path: a.copy() for path, a in (self.parameters | self.buffers).items()}

    def unwrap(self) -> Any:
        parameters = {path: SimpleNamespace(trainable=True) for path in self.parameters}
        return SimpleNamespace(named_parameters=lambda: parameters)

    def average_parameters(self) -> StubAverage:
        return StubAverage(self.parameters)

    def memory_bytes(self) -> int | None:
        return self.memory


class Clock:
    """A clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def batch_of(*indices: int) -> Batch:
    return Batch({}, np.array(indices, dtype=np.int64))


def step(context: Context, callback: Any, *losses: float, skipped: bool = False) -> None:
    """Bring a window of micro-batches, one for each loss, to a callback as the loop does."""
    for number, loss in enumerate(losses or (1.0,)):
        batch = batch_of(10 * number, 10 * number + 1)
        term = LossTerm(np.array([loss, loss]), None, 2.0)
        callback.batch_start(context, batch, batch.indices)
        callback.loss_start(context, {}, batch)
        callback.backward_start(context, term)
        callback.backward_end(context, term)
    callback.step_start(context)
    context.progress.skipped_steps += skipped or context.skip_requested
    context.skip_requested = False
    context.progress.step += 1
    context.progress.epoch_step += 1
    context.progress.samples += 2.0 * max(1, len(losses))
    callback.step_end(context)


def evaluate(context: Context, callback: Any, **metrics: float) -> None:
    """Bring one evaluation to a callback."""
    callback.eval_start(context)
    context.eval_metrics = metrics
    callback.eval_end(context, metrics)
