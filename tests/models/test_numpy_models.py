from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError
from expkit.models.numpy import Dropout, Linear, Mlp, Module, Parameter, ReLU, Sequential


def make(seed=0, **changes):
    arguments = {"in_features": 5, "hidden": [4, 3], "out_features": 2, **changes}
    model = Mlp(**arguments)
    model.initialize(seed)
    return model


def in_double_precision(model):
    for parameter in model.named_parameters().values():
        parameter.value = parameter.value.astype(np.float64)
    return model


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients_match_finite_differences(activation, dropout):
    model = in_double_precision(make(activation=activation, dropout=dropout, hidden=[6, 5]))
    stream = np.random.default_rng(1)
    x, cotangent = stream.standard_normal((3, 5)), stream.standard_normal((3, 2))
    for parameter in model.named_parameters().values():
        # Off the kink of ReLU, where a row whose inputs are all dropped would sit with no bias.
        parameter.value += 0.1 * stream.standard_normal(parameter.value.shape)
    state = model.rng.bit_generator.state

    def value():
        model.rng.bit_generator.state = state  # the same dropout masks each time
        return float((model.forward(x) * cotangent).sum())

    value()
    model.backward(cotangent)
    for path, parameter in model.named_parameters().items():
        expected = np.zeros_like(parameter.value)
        for place in np.ndindex(parameter.value.shape):
            kept = parameter.value[place]
            parameter.value[place] = kept + 1e-6
            above = value()
            parameter.value[place] = kept - 1e-6
            below = value()
            parameter.value[place] = kept
            expected[place] = (above - below) / 2e-6
        np.testing.assert_allclose(parameter.grad, expected, rtol=1e-5, atol=1e-8, err_msg=path)


def test_backward_gives_the_gradient_by_the_samples():
    model = in_double_precision(make(activation="tanh"))
    x = np.random.default_rng(2).standard_normal((1, 5))
    model.forward(x)
    grad = model.backward(np.ones((1, 2)))
    step = 1e-6 * np.eye(5)
    numeric = [(model.forward(x + s).sum() - model.forward(x - s).sum()) / 2e-6 for s in step]
    np.testing.assert_allclose(grad[0], numeric, rtol=1e-6)


def test_gradients_add_up_over_backward_passes():
    model = make()
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    once = {}
    for _ in range(2):
        model.forward(x)
        model.backward(np.ones((4, 2), np.float32))
        if not once:
            once = {path: p.grad.copy() for path, p in model.named_parameters().items()}
    for path, parameter in model.named_parameters().items():
        np.testing.assert_allclose(parameter.grad, 2 * once[path], rtol=1e-6)
        assert parameter.grad.dtype == np.float32


def test_frozen_parameters_get_no_gradient():
    model = make()
    frozen = model.named_parameters()["layers.linear_0.weight"]
    frozen.trainable = False
    model.forward(np.ones((2, 5), np.float32))
    model.backward(np.ones((2, 2), np.float32))
    assert frozen.grad is None
    assert model.named_parameters()["layers.linear_0.bias"].grad is not None


def test_evaluation_keeps_nothing_and_does_not_drop():
    model = make(dropout=0.5)
    x = np.ones((2, 5), np.float32)
    state = model.rng.bit_generator.state
    model.training = False
    first, second = model.forward(x), model.forward(x)
    np.testing.assert_array_equal(first, second)
    assert repr(model.rng.bit_generator.state) == repr(state)
    with pytest.raises(RuntimeError, match="without forward"):
        model.backward(np.ones((2, 2), np.float32))
    model.training = True
    assert not np.array_equal(model.forward(x), model.forward(x))


def test_dropout_keeps_the_mean_and_resumes_from_the_state_of_the_models_generator():
    rng = np.random.Generator(np.random.Philox(0))
    layer = Dropout(0.25, rng)
    ones = np.ones((200, 200), np.float32)
    state = rng.bit_generator.state
    dropped = layer.forward(ones)
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert dropped.mean() == pytest.approx(1.0, abs=0.02)
    rng.bit_generator.state = state
    np.testing.assert_array_equal(layer.forward(ones), dropped)


def test_initialize_is_a_function_of_the_seed():
    model, other = make(seed=3, dropout=0.5), make(seed=3, dropout=0.5)
    x = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(model.forward(x), other.forward(x))
    values = [p.value.copy() for p in model.named_parameters().values()]
    model.initialize(3)
    for value, parameter in zip(values, model.named_parameters().values(), strict=True):
        np.testing.assert_array_equal(value, parameter.value)
    assert not np.array_equal(make(seed=4).forward(x), make(seed=3).forward(x))


def test_paths_name_the_layers_whatever_is_between_them():
    paths = ["linear_0.weight", "linear_0.bias", "linear_1.weight", "linear_1.bias"]
    expected = [f"layers.{path}" for path in [*paths, "output.weight", "output.bias"]]
    assert list(make().named_parameters()) == expected
    assert list(make(dropout=0.5).named_parameters()) == expected


def test_images_are_flattened():
    model = make(in_features=8)
    x = np.arange(16, dtype=np.float32).reshape(2, 1, 2, 4)
    np.testing.assert_array_equal(model.forward(x), model.forward(x.reshape(2, 8)))


def test_gelu_is_exact():
    layer = make(hidden=[1], activation="gelu").layers.activation_0
    value = layer.forward(np.array([-3.0, -1.0, 0.0, 1.0, 3.0]))
    exact = [-0.00404969409489031, -0.158655253931457, 0.0, 0.841344746068543, 2.99595030590511]
    np.testing.assert_allclose(value, exact, rtol=1e-13)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_norm_that_numpy_lacks_is_refused_with_the_drivers_that_have_it(norm):
    with pytest.raises(ConfigError, match=r"allowed: none .*driver=torch, driver=paddle"):
        make(norm=norm)


class Scaled(Module):
    """A user's model: a layer in a sequence, a parameter and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.scale = Parameter(np.ones(2, np.float32), kind="ones")
        self.body = Sequential({"inner": Linear(3, 2), "relu": ReLU()})
        self.buffers["steps"] = np.zeros(1, np.int64)

    def forward(self, x):
        if self.training:
            self.buffers["steps"] += 1
        self.hidden = self.body.forward(x)
        return self.hidden * self.scale.value

    def backward(self, grad_output):
        self.scale.accumulate((grad_output * self.hidden).sum(axis=0))
        return self.body.backward(grad_output * self.scale.value)


def test_a_users_model_needs_forward_and_backward_only():
    model = Scaled()
    model.initialize(0)
    assert list(model.named_parameters()) == ["scale", "body.inner.weight", "body.inner.bias"]
    model.forward(np.ones((4, 3), np.float32))
    model.backward(np.ones((4, 2), np.float32))
    assert all(p.grad.shape == p.value.shape for p in model.named_parameters().values())
    assert model.named_buffers()["steps"].tolist() == [1]
    model.training = False
    assert not model.body.inner.training
