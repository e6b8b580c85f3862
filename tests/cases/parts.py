"""Small parts from which the cases are put together, the same for every driver."""

from __future__ import annotations

import importlib
from collections.abc import Callable as Function
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from expkit.checkpoint import CheckpointStore
from expkit.core.events import EVENTS, Callback
from expkit.core.logger import Logger
from expkit.core.trainer import Trainer
from expkit.data import Data
from expkit.losses import CrossEntropy, MeanAbsoluteError
from expkit.optimizers import SGD, Adam

FEATURES, CLASSES = 6, 3
DRIVERS = {"numpy": "NumpyDriver", "torch": "TorchDriver", "paddle": "PaddleDriver"}


# -- drivers and models --------------------------------------------------------------------------


def make_driver(framework: str, **options: Any) -> Any:
    module = importlib.import_module(f"expkit.drivers.{framework}")
    return getattr(module, DRIVERS[framework])(**{"device": "cpu", **options})


def make_mlp(framework: str, seed: int = 0, **options: Any) -> Any:
    """A small perceptron with the same first weights on every driver."""
    module = importlib.import_module(f"expkit.models.{framework}")
    sizes = {"in_features": FEATURES, "out_features": CLASSES, "hidden": (8,), "activation": "tanh"}
    model = module.Mlp(**{**sizes, **options})
    model.initialize(seed)
    return model


def make_constant(framework: str, width: int = 1, start: float = 0.0) -> Any:
    """output = sum over j of (w_j + 1) * g_j: the gradient by w is the mean of g, whatever w is."""
    return {"numpy": _numpy_constant, "torch": _torch_constant, "paddle": _paddle_constant}[
        framework
    ](width, start)


def _numpy_constant(width: int, start: float) -> Any:
    from expkit.models.numpy import Module
    from expkit.models.numpy.layers import Parameter

    class Constant(Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(np.full(width, start, np.float32))

        def forward(self, g):
            self.g = g
            return g @ (self.w.value + 1)

        def backward(self, grad_output):
            self.w.accumulate(grad_output @ self.g)
            return grad_output

    return Constant()


def _torch_constant(width: int, start: float) -> Any:
    import torch

    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((width,), start))

        def forward(self, g):
            return g @ (self.w + 1)

    return Constant()


def _paddle_constant(width: int, start: float) -> Any:
    import paddle

    class Constant(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            value = paddle.nn.initializer.Constant(start)
            self.w = self.create_parameter([width], default_initializer=value)

        def forward(self, g):
            return paddle.matmul(g, self.w + 1)

    return Constant()


# -- data ----------------------------------------------------------------------------------------


def samples(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Labelled points; the field ``index`` tells which one a sample is."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, FEATURES)).astype(np.float32)
    y = (x @ np.random.default_rng(99).standard_normal((FEATURES, CLASSES))).argmax(axis=1)
    return {"x": x, "y": y, "index": np.arange(n)}


def gradients(*rows: Any) -> dict[str, np.ndarray]:
    """Data for `make_constant`: one gradient per sample."""
    g = np.asarray(rows, dtype=np.float32)
    return {"g": g.reshape(len(g), -1), "y": np.zeros(len(g), np.float32)}


# -- the other parts of a run --------------------------------------------------------------------


class Consumed(Callback):
    """Writes down which samples each step really trained on, and in which epoch."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, list[int]]] = []

    def batch_start(self, context, batch, indices) -> None:
        seen = batch.fields["index"].tolist()
        assert seen == indices.tolist()
        self.rows.append((context.progress.epoch, context.progress.step + 1, seen))

    def steps(self) -> list[int]:
        return [step for _, step, _ in self.rows]

    def of_epoch(self, epoch: int) -> list[int]:
        return [index for own, _, indices in self.rows if own == epoch for index in indices]


class Probe(Callback):
    """Acts at the end of given steps, and counts updates."""

    def __init__(self, actions: Mapping[int, Function[[Any], None]] | None = None) -> None:
        self.actions = dict(actions or {})
        self.updates = 0

    def step_end(self, context) -> None:
        self.updates += 1
        if context.progress.step in self.actions:
            self.actions[context.progress.step](context)


def fail(error: BaseException) -> Function[[Any], None]:
    """An action that raises."""

    def action(context: Any) -> None:
        raise error

    return action


def stop(context: Any) -> None:
    """An action that asks for the end of the run."""
    context.request_stop("the test says so")


class Scripted:
    """An evaluation whose metric is the next number of a list; None leaves the metric out."""

    needs: frozenset[str] = frozenset()

    def __init__(self, *values: Any, name: str = "accuracy") -> None:
        self.values = list(values)
        self.name = name
        self.calls = 0

    def join(self, group) -> None:
        pass

    def reset(self) -> None:
        pass

    def update(self, outputs, fields, weights) -> None:
        pass

    def reduce(self, group) -> None:
        pass

    def compute(self) -> dict[str, float]:
        value = self.values[self.calls] if self.calls < len(self.values) else 0.0
        self.calls += 1
        if callable(value):
            value = value()
        return {} if value is None else {self.name: value}


class Records(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, dict[str, float]]] = []

    def log(self, split, step, epoch, metrics) -> None:
        self.rows.append((split, step, epoch, dict(metrics)))

    def of(self, split: str, name: str) -> dict[int, float]:
        """One metric by step."""
        return {s: m[name] for kind, s, _, m in self.rows if kind == split and name in m}

    def steps(self, split: str) -> list[int]:
        return [step for kind, step, _, _ in self.rows if kind == split]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Events(Callback):
    """Notes the name of each event."""

    def __init__(self) -> None:
        self.calls: list[str] = []


def _note(event: str) -> Function[..., None]:
    def handler(self: Events, context: Any, *args: Any) -> None:
        self.calls.append(event)

    return handler


for _event in EVENTS:
    setattr(Events, _event, _note(_event))


# -- runs ----------------------------------------------------------------------------------------


def make_trainer(framework: str = "numpy", **options: Any) -> Trainer:
    """A trainer of a small classifier on 20 samples in batches of 4: 5 steps an epoch.

    Args:
        framework: name of the driver.
        **options: arguments of `Trainer`; and ``n``, ``batch_size``, ``eval_on`` (samples), ``mlp``
            and ``driver_options`` (dicts).
    """
    n, batch_size = options.pop("n", 20), options.pop("batch_size", 4)
    held_out = options.pop("eval_on", 0)
    mlp, driver = options.pop("mlp", {}), options.pop("driver_options", {})
    data = options.pop("data", None)
    if data is None:
        data = Data(samples(n), samples(held_out, 1) if held_out else None, batch_size=batch_size)
    made = {
        "driver": make_driver(framework, **driver) if "driver" not in options else None,
        "model": make_mlp(framework, **mlp) if "model" not in options else None,
        "optimizer": Adam(lr=0.01),
        "loss": CrossEntropy(),
        "logger": Records(),
        "n_epochs": 3,
    }
    return Trainer(**{**made, **options, "data": data})


def train_constant(framework: str, data: Any, width: int = 1, **options: Any) -> Trainer:
    """Train the model of constant gradients with plain SGD, and give the trainer."""
    defaults = {"optimizer": SGD(lr=0.1), "loss": MeanAbsoluteError(), "n_epochs": 1}
    model = make_constant(framework, width)
    trainer = make_trainer(framework, model=model, data=data, **{**defaults, **options})
    trainer.fit()
    return trainer


def weights(trainer: Trainer) -> np.ndarray:
    """All parameters in one array."""
    state = trainer.driver.model_state()
    return np.concatenate([np.ravel(state[path]) for path in sorted(state)])


def interrupted(trainer: Trainer, probe: Probe, step: int) -> Trainer:
    """Run until a stop signal comes in during ``step``."""
    probe.actions[step] = lambda context: trainer.interrupt("SIGTERM")
    result = trainer.fit()
    assert (result.status, result.steps) == ("interrupted", step)
    return trainer


def resumed(trainer: Trainer, root: Path) -> Trainer:
    """Give a new trainer the last state on disk."""
    state, _ = CheckpointStore(root).load("last")
    trainer.load_state(state)
    return trainer


def close_store(trainer: Trainer) -> None:
    """Wait until the store of a trainer has written everything, and end its threads."""
    trainer._checkpoints._store._store.close()


def assert_same(left: Any, right: Any, path: str = "") -> None:
    """Two state trees, equal to the last bit; only the time that passed may differ."""
    if isinstance(left, Mapping):
        assert left.keys() == right.keys(), path
        for key in left:
            if key != "seconds":
                assert_same(left[key], right[key], f"{path}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), path
        for place, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same(one, other, f"{path}/{place}")
    else:
        np.testing.assert_array_equal(left, right, err_msg=path)
        assert getattr(left, "dtype", None) == getattr(right, "dtype", None), path
