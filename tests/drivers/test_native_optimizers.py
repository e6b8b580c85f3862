from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from expkit.core.errors import ConfigError
from expkit.optimizers import AdamW, Native
from tests.drivers.optimizer_problem import (
    TOOLS,
    Problem,
    assert_equal,
    numpy_tools,
    paddle_tools,
    resumed,
    torch_tools,
)


def test_numpy_has_no_native_optimizers():
    with pytest.raises(ConfigError, match="the driver is numpy"):
        Problem(numpy_tools(), dict)


def test_the_frameworks_refuse_each_others_optimizers():
    torch, paddle = pytest.importorskip("torch"), pytest.importorskip("paddle")
    with pytest.raises(ConfigError, match=r"is torch\.optim.*the driver is paddle"):
        Problem(paddle_tools(), partial(torch.optim.RMSprop, lr=0.1))
    with pytest.raises(
        ConfigError, match=r"is paddle\.optimizer.*an optimizer of paddle; the driver is torch"
    ):
        Problem(torch_tools(), paddle.optimizer.Lamb)
    with pytest.raises(ConfigError, match=r"an optimizer of torch; the driver is numpy"):
        Problem(numpy_tools(), torch.optim.RMSprop)


class Deferred(partial):
    """A partial of another class, as Hydra makes it: a partial of it is one in another."""


def test_errors_name_what_a_partial_calls():
    torch, paddle = pytest.importorskip("torch"), pytest.importorskip("paddle")
    for tools in (torch_tools, numpy_tools):
        with pytest.raises(ConfigError, match=r"optimizer: is paddle\.optimizer\.lamb\.Lamb, an"):
            Problem(tools(), Deferred(paddle.optimizer.Lamb, learning_rate=0.1))
    with pytest.raises(ConfigError, match=r"torch\.optim\.rmsprop\.RMSprop refuses its options"):
        Problem(torch_tools(), Deferred(torch.optim.RMSprop, typo=1))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_what_gives_no_optimizer_is_refused(framework):
    with pytest.raises(ConfigError, match="which gives list"):
        Problem(TOOLS[framework](), lambda *args, **arguments: [])


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_options_that_a_native_optimizer_refuses_are_a_config_error(framework):
    tools = TOOLS[framework]()
    kind = native(framework, "RMSprop" if framework == "torch" else "RMSProp")
    with pytest.raises(ConfigError, match=r"refuses its options.*typo"):
        Problem(tools, partial(kind, typo=1))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_optimizers_that_compute_the_loss_again_are_refused(framework):
    tools = TOOLS[framework]()
    with pytest.raises(ConfigError, match="computes the loss in each step again"):
        Problem(tools, native(framework, "LBFGS"))


def native(framework, name):
    module = pytest.importorskip(framework)
    return getattr(module.optim if framework == "torch" else module.optimizer, name)


NATIVES = [
    ("torch", "SGD", {"lr": 0.01, "momentum": 0.9}),
    ("torch", "Adam", {"lr": 0.01}),
    ("torch", "AdamW", {"lr": 0.01, "fused": True}),
    ("torch", "RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("torch", "Adagrad", {"lr": 0.01}),
    ("torch", "NAdam", {"lr": 0.01}),
    ("torch", "ASGD", {"lr": 0.01}),
    ("torch", "Rprop", {"lr": 0.01}),
    ("paddle", "SGD", {"learning_rate": 0.01}),
    ("paddle", "Momentum", {"learning_rate": 0.01}),
    ("paddle", "Adam", {"learning_rate": 0.01}),
    ("paddle", "AdamW", {"learning_rate": 0.01}),
    ("paddle", "Adagrad", {"learning_rate": 0.01}),
    ("paddle", "RMSProp", {"learning_rate": 0.01, "momentum": 0.5, "centered": True}),
    ("paddle", "Lamb", {"learning_rate": 0.01}),
    ("paddle", "Adamax", {"learning_rate": 0.01}),
    ("paddle", "Adadelta", {"learning_rate": 0.01}),
    ("paddle", "NAdam", {"learning_rate": 0.01}),
    ("paddle", "RAdam", {"learning_rate": 0.01}),
    ("paddle", "Rprop", {"learning_rate": 0.01}),
]


@pytest.mark.parametrize(
    ("framework", "name", "options"), NATIVES, ids=[f"{f}-{name}" for f, name, _ in NATIVES]
)
def test_native_optimizers_resume_exactly(framework, name, options):
    tools, kind = TOOLS[framework](), native(framework, name)
    straight = Problem(tools, partial(kind, **options)).train(range(12))
    first = Problem(tools, partial(kind, **options))
    first.train(range(5))
    assert_equal(resumed(first, Problem(tools, partial(kind, **options)), 5), straight)


@pytest.mark.parametrize(
    ("framework", "name", "lr"), [("torch", "AdamW", "lr"), ("paddle", "AdamW", "learning_rate")]
)
def test_a_native_optimizer_does_what_its_spec_does_and_takes_its_state(framework, name, lr):
    tools = TOOLS[framework]()
    spec = AdamW(lr=0.01, weight_decay=0.1, groups=[{"params": "*.bias", "lr": 0.02}])
    same = Native(
        optimizer=partial(native(framework, name), **{lr: 0.01, "weight_decay": 0.1}),
        groups=[{"params": "*.bias", lr: 0.02}],
    )
    first, straight = Problem(tools, spec), Problem(tools, same).train(range(12))
    first.train(range(5))
    other = Problem(tools, same)
    assert other.optimizers.learning_rates() == {"lr/default/0": 0.01, "lr/default/1": 0.02}
    for path, value in resumed(first, other, 5).items():
        np.testing.assert_allclose(value, straight[path], rtol=1e-5, atol=1e-6)


def test_numbers_that_a_torch_optimizer_keeps_in_its_groups_survive():
    torch = pytest.importorskip("torch")

    class Growing(torch.optim.Optimizer):
        def __init__(self, params, lr=0.01):
            super().__init__(params, {"lr": lr, "growth": 1.0, "calls": 0})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                group["growth"] *= 1.5
                group["calls"] += 1
                for p in group["params"]:
                    p.sub_(p.grad, alpha=group["lr"] * group["growth"])

    tools = torch_tools()
    straight = Problem(tools, Growing).train(range(12))
    first = Problem(tools, Growing)
    first.train(range(5))
    state = first.optimizers.state()
    assert state["default"] == {
        "hidden.weight/group.growth": 1.5**5,
        "hidden.weight/group.calls": 5,
    }
    assert json.loads(json.dumps(state)) == state
    assert_equal(resumed(first, Problem(tools, Growing), 5), straight)


def test_a_native_paddle_optimizer_with_its_own_scheduler_is_refused():
    paddle = pytest.importorskip("paddle")
    scheduler = paddle.optimizer.lr.NoamDecay(10, 10)
    with pytest.raises(ConfigError, match="a scheduler as its learning_rate"):
        Problem(paddle_tools(), partial(paddle.optimizer.SGD, learning_rate=scheduler))
