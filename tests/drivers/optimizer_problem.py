"""A small regression problem in each framework, for the tests of its optimizers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from expkit.models.numpy.layers import Parameter

RNG = np.random.default_rng(0)
WEIGHTS = {
    "hidden.weight": RNG.normal(size=(5, 8)).astype(np.float32),
    "hidden.bias": RNG.normal(size=8).astype(np.float32),
    "head.weight": RNG.normal(size=(8, 3)).astype(np.float32),
    "head.bias": RNG.normal(size=3).astype(np.float32),
}
INPUTS = RNG.normal(size=(20, 5)).astype(np.float32)
TARGETS = RNG.normal(size=(20, 3)).astype(np.float32)


def gradients(weights):
    """Of the mean squared error of a small network, by hand."""
    hidden = np.tanh(INPUTS @ weights["hidden.weight"] + weights["hidden.bias"])
    error = (hidden @ weights["head.weight"] + weights["head.bias"] - TARGETS) / len(INPUTS)
    back = (error @ weights["head.weight"].T) * (1 - hidden**2)
    return {
        "hidden.weight": INPUTS.T @ back,
        "hidden.bias": back.sum(0),
        "head.weight": hidden.T @ error,
        "head.bias": error.sum(0),
    }


def numpy_tools():
    from expkit.drivers.numpy.optimizers import OptimizerSet

    def freeze(parameter):
        parameter.trainable = False

    return SimpleNamespace(
        OptimizerSet=OptimizerSet,
        make=lambda value: Parameter(value.copy()),
        freeze=freeze,
        value=lambda p: p.value.copy(),
        set_grad=lambda p, g: setattr(p, "grad", g),
    )


def torch_tools():
    torch = pytest.importorskip("torch")
    from expkit.drivers.torch.optimizers import OptimizerSet

    return SimpleNamespace(
        OptimizerSet=OptimizerSet,
        make=lambda value: torch.nn.Parameter(torch.tensor(value)),
        freeze=lambda p: p.requires_grad_(False),
        value=lambda p: p.detach().numpy().copy(),
        set_grad=lambda p, g: setattr(p, "grad", torch.tensor(g)),
    )


def paddle_tools():
    paddle = pytest.importorskip("paddle")
    from expkit.drivers.paddle.optimizers import OptimizerSet

    def make(value):
        parameter = paddle.create_parameter(list(value.shape), "float32")
        parameter.set_value(value)
        return parameter

    def set_grad(parameter, gradient):
        parameter.clear_gradient(False)
        (parameter * paddle.to_tensor(gradient)).sum().backward()

    return SimpleNamespace(
        OptimizerSet=OptimizerSet,
        make=make,
        freeze=lambda p: setattr(p, "stop_gradient", True),
        value=lambda p: p.numpy(),
        set_grad=set_grad,
    )


TOOLS = {"numpy": numpy_tools, "torch": torch_tools, "paddle": paddle_tools}


class Problem:
    """A model and its optimizers in one framework."""

    def __init__(self, tools, optimizers, frozen=(), paths=tuple(WEIGHTS)):
        self.tools = tools
        self.parameters = {path: tools.make(WEIGHTS[path]) for path in paths}
        for path in frozen:
            tools.freeze(self.parameters[path])
        self.optimizers = tools.OptimizerSet(optimizers, self.parameters)

    def weights(self):
        return {path: self.tools.value(p) for path, p in self.parameters.items()}

    def train(self, steps, without=()):
        for step in steps:
            for path, gradient in gradients(WEIGHTS | self.weights()).items():
                if path in self.parameters and path not in without:
                    self.tools.set_grad(self.parameters[path], gradient)
            self.optimizers.step([1 - step / 100] * len(self.optimizers.names))
            self.optimizers.zero()
        return self.weights()


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for path in left:
        np.testing.assert_array_equal(left[path], right[path], err_msg=path)


def resumed(first, second, stop):
    """Go on in ``second`` from where ``first`` stands."""
    for path, value in first.weights().items():
        source, target = second.tools.make(value), second.parameters[path]
        if hasattr(target, "set_value"):
            target.set_value(source)
        else:
            holder = target.value if isinstance(target, Parameter) else target.data
            holder[...] = source.value if isinstance(source, Parameter) else source.data
    second.optimizers.load_state(first.optimizers.state())
    return second.train(range(stop, 12))
