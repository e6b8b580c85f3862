from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from expkit.core.errors import CheckpointError, ConfigError
from expkit.models.numpy.layers import Parameter
from expkit.optimizers import SGD, Adam, AdamW, Native

RNG = np.random.default_rng(0)
WEIGHTS = {
    "hidden.weight": RNG.normal(size=(5, 8)).astype(np.float32),
    "hidden.bias": RNG.normal(size=8).astype(np.float32),
    "head.weight": RNG.normal(size=(8, 3)).astype(np.float32),
    "head.bias": RNG.normal(size=3).astype(np.float32),
}
INPUTS = RNG.normal(size=(20, 5)).astype(np.float32)
TARGETS = RNG.normal(size=(20, 3)).astype(np.float32)

SPECS = {
    "sgd": SGD(lr=0.05),
    "sgd-l2": SGD(lr=0.05, weight_decay=0.1),
    "momentum": SGD(lr=0.02, momentum=0.9),
    "momentum-l2": SGD(lr=0.02, momentum=0.9, weight_decay=0.1),
    "nesterov-l2": SGD(lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": Adam(lr=0.01, betas=(0.8, 0.95)),
    "adam-l2": Adam(lr=0.01, weight_decay=0.1, eps=1e-4),
    "adamw": AdamW(lr=0.01, weight_decay=0.1),
    "adamw-groups": AdamW(
        lr=0.01,
        weight_decay=0.1,
        groups=[{"params": "*.bias", "weight_decay": 0.0, "lr": 0.02}],
    ),
}


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


@pytest.fixture(params=list(TOOLS))
def tools(request):
    return TOOLS[request.param]()


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

    def load(self, weights, state):
        for path, value in weights.items():
            self.parameters[path] = self.tools.make(value)
        raise NotImplementedError

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


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_fifty_steps_agree_with_the_reference(framework, spec):
    reference = Problem(numpy_tools(), spec).train(range(50))
    for path, value in Problem(TOOLS[framework](), spec).train(range(50)).items():
        np.testing.assert_allclose(value, reference[path], rtol=1e-5, atol=1e-6, err_msg=path)
        assert np.abs(value - WEIGHTS[path]).max() > 0.01


def test_one_update_is_the_formula_of_the_spec(tools):
    gradient = np.full(3, 2.0, np.float32)
    for spec, expected in [
        (SGD(lr=0.1, weight_decay=0.5), 1 - 0.1 * (2 + 0.5)),
        (SGD(lr=0.1, momentum=0.9, nesterov=True), 1 - 0.1 * (2 + 0.9 * 2)),
        (Adam(lr=0.1, weight_decay=0.5), 1 - 0.1),
        (AdamW(lr=0.1, weight_decay=0.5), 1 * (1 - 0.1 * 0.5) - 0.1),
    ]:
        parameter = tools.make(np.ones(3, np.float32))
        optimizers = tools.OptimizerSet(spec, {"w": parameter})
        tools.set_grad(parameter, gradient)
        optimizers.step([1.0])
        np.testing.assert_allclose(tools.value(parameter), expected, rtol=1e-6)


@pytest.mark.parametrize("stop", [0, 1, 7])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_resume_is_exact(tools, spec, stop):
    straight = Problem(tools, spec).train(range(12))
    first = Problem(tools, spec)
    first.train(range(stop))
    assert_equal(resumed(first, Problem(tools, spec), stop), straight)


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


def test_a_state_loads_at_a_later_time_too(tools):
    first = Problem(tools, Adam(lr=0.01))
    first.train(range(5))
    second = Problem(tools, Adam(lr=0.01))
    second.train(range(9))
    assert_equal(resumed(first, second, 5), first.train(range(5, 12)))


def test_the_state_is_a_copy_keyed_by_parameter_path(tools):
    problem = Problem(tools, Adam())
    before = problem.optimizers.state()
    kept = {key: np.array(array) for key, array in before["default"].items()}
    problem.train(range(2))
    assert_equal(before["default"], kept)
    assert {key.rpartition("/")[0] for key in before["default"]} == set(WEIGHTS)


def test_another_model_in_the_process_changes_no_key(tools):
    keys = [list(Problem(tools, AdamW()).optimizers.state()["default"]) for _ in range(2)]
    assert keys[0] == keys[1]


def test_plain_sgd_has_no_state(tools):
    assert Problem(tools, SGD()).optimizers.state() == {"default": {}}


def test_a_parameter_without_gradient_stays_as_it_is(tools):
    for spec in SPECS.values():
        problem = Problem(tools, spec)
        problem.train(range(2))
        before = problem.weights()
        after = problem.train(range(2, 4), without=["head.bias"])
        np.testing.assert_array_equal(after["head.bias"], before["head.bias"])
        assert np.any(after["head.weight"] != before["head.weight"])


def test_zero_leaves_no_gradient(tools):
    problem = Problem(tools, SGD())
    for path, gradient in gradients(WEIGHTS).items():
        tools.set_grad(problem.parameters[path], gradient)
    problem.optimizers.zero()
    assert all(p.grad is None for p in problem.parameters.values())


def test_frozen_parameters_are_left_out(tools):
    problem = Problem(tools, Adam(), frozen=["hidden.weight", "hidden.bias"])
    assert len(problem.optimizers.parameters) == 2
    assert {key.partition(".")[0] for key in problem.optimizers.state()["default"]} == {"head"}


def test_a_pattern_that_only_frozen_parameters_match_is_refused(tools):
    with pytest.raises(ConfigError, match="matches no trainable parameter"):
        Problem(tools, Adam(params="hidden.*"), frozen=["hidden.weight", "hidden.bias"])


def test_all_frozen_is_refused(tools):
    with pytest.raises(ConfigError, match="all are frozen"):
        Problem(tools, Adam(), frozen=list(WEIGHTS))


def test_without_optimizers_nothing_is_trained(tools):
    optimizers = tools.OptimizerSet(None, {"w": tools.make(np.ones(2, np.float32))})
    optimizers.step([])
    optimizers.zero()
    assert (optimizers.names, optimizers.parameters, optimizers.learning_rates()) == ([], [], {})
    assert optimizers.state() == {}


def test_parameters_that_nothing_trains_are_named_once(tools, caplog):
    Problem(tools, Adam(params="head.*"))
    assert caplog.messages == [
        "no optimizer trains 2 of the parameters: hidden.weight, hidden.bias"
    ]


def test_the_single_rate_is_called_lr(tools):
    optimizers = Problem(tools, SGD(lr=0.5)).optimizers
    assert optimizers.learning_rates() == {"lr": 0.5}
    optimizers.step([0.1])
    assert optimizers.learning_rates() == {"lr": 0.05}
    assert optimizers.base_lr == 0.5


def test_each_group_keeps_its_own_base_rate(tools):
    two = {
        "body": SGD(lr=0.1, params="hidden.*", groups=[{"params": "*.bias", "lr": 0.4}]),
        "head": Adam(lr=0.5, params="head.*"),
    }
    problem = Problem(tools, two)
    optimizers = problem.optimizers
    assert optimizers.names == ["body", "head"]
    assert optimizers.learning_rates() == {"lr/body/0": 0.1, "lr/body/1": 0.4, "lr/head": 0.5}
    for path, parameter in problem.parameters.items():
        tools.set_grad(parameter, np.ones_like(WEIGHTS[path]))
    optimizers.step([0.5, 0.2])
    moved = {path: WEIGHTS[path] - value for path, value in problem.weights().items()}
    for path, expected in zip(WEIGHTS, [0.05, 0.2, 0.1, 0.1], strict=True):
        np.testing.assert_allclose(moved[path], expected, rtol=1e-4)
    assert optimizers.learning_rates() == {"lr/body/0": 0.05, "lr/body/1": 0.2, "lr/head": 0.1}


def test_a_factor_for_each_optimizer_is_needed(tools):
    with pytest.raises(ValueError, match="2 factors for the optimizers default"):
        Problem(tools, SGD()).optimizers.step([1.0, 1.0])


def test_a_state_of_other_optimizers_is_refused(tools):
    two = {"a": SGD(params="head.*"), "b": SGD(params="hidden.*")}
    state = Problem(tools, two).optimizers.state()
    with pytest.raises(CheckpointError, match="other optimizers: a, b; here: default"):
        Problem(tools, SGD()).optimizers.load_state(state)


def test_a_state_of_another_model_names_the_path(tools):
    state = Problem(tools, Adam()).optimizers.state()
    fewer = Problem(tools, Adam(), paths=["head.weight", "head.bias"]).optimizers
    with pytest.raises(CheckpointError, match=r"hidden\.weight"):
        fewer.load_state(state)
    more = Problem(tools, Adam()).optimizers
    with pytest.raises(CheckpointError, match=r"hidden\.weight"):
        more.load_state(fewer.state())


def test_a_state_of_another_kind_of_optimizer_is_refused(tools):
    state = Problem(tools, SGD(momentum=0.9)).optimizers.state()
    with pytest.raises(CheckpointError, match=r"head\.bias/"):
        Problem(tools, Adam()).optimizers.load_state(state)


def test_a_state_of_another_shape_names_the_path(tools):
    state = Problem(tools, Adam()).optimizers.state()
    key = next(key for key in state["default"] if key.startswith("hidden.weight/"))
    state["default"][key] = np.zeros((2, 2), np.float32)
    with pytest.raises(CheckpointError, match=r"hidden\.weight/.* has shape \(2, 2\)"):
        Problem(tools, Adam()).optimizers.load_state(state)


def test_numpy_has_no_native_optimizers():
    with pytest.raises(ConfigError, match="the driver is numpy"):
        Problem(numpy_tools(), dict)


def test_the_frameworks_refuse_each_others_optimizers():
    torch, paddle = pytest.importorskip("torch"), pytest.importorskip("paddle")
    with pytest.raises(ConfigError, match=r"is torch\.optim.*the driver is paddle"):
        Problem(paddle_tools(), partial(torch.optim.RMSprop, lr=0.1))
    with pytest.raises(ConfigError, match=r"is paddle\.optimizer.*the driver is torch"):
        Problem(torch_tools(), paddle.optimizer.Lamb)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_what_gives_no_optimizer_is_refused(framework):
    with pytest.raises(ConfigError, match="which gives list"):
        Problem(TOOLS[framework](), lambda *args, **arguments: [])


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_options_that_a_native_optimizer_refuses_are_a_config_error(framework):
    tools = TOOLS[framework]()
    kind = native(framework, "RMSprop" if framework == "torch" else "RMSProp")
    with pytest.raises(ConfigError, match="refuses its options.*typo"):
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
    assert state["default"] == {"hidden.weight/group.growth": 1.5**5, "hidden.weight/group.calls": 5}
    assert json.loads(json.dumps(state)) == state
    assert_equal(resumed(first, Problem(tools, Growing), 5), straight)


def test_a_native_paddle_optimizer_with_its_own_scheduler_is_refused():
    paddle = pytest.importorskip("paddle")
    scheduler = paddle.optimizer.lr.NoamDecay(10, 10)
    with pytest.raises(ConfigError, match="a scheduler as its learning_rate"):
        Problem(paddle_tools(), partial(paddle.optimizer.SGD, learning_rate=scheduler))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_specs_refuse_parameters_that_their_kernels_cannot_train(framework):
    module = pytest.importorskip(framework)
    dtype = "complex64" if framework == "torch" else "bfloat16"
    tensor = module.ones([2], dtype=getattr(module, dtype))
    if framework == "torch":
        tensor.requires_grad_()
    else:
        tensor.stop_gradient = False
    with pytest.raises(ConfigError, match=f"cannot train parameters of.*{dtype}"):
        TOOLS[framework]().OptimizerSet(Adam(), {"w": tensor})


def test_parameters_of_two_types_train_together():
    torch = pytest.importorskip("torch")
    pair = {name: torch.ones(3, dtype=getattr(torch, name)) for name in ("float32", "float64")}
    for tensor in pair.values():
        tensor.requires_grad_()
    optimizers = torch_tools().OptimizerSet(Adam(lr=0.1), pair)
    for tensor in pair.values():
        tensor.grad = torch.ones_like(tensor)
    optimizers.step([1.0])
    assert [tensor[0].item() for tensor in pair.values()] == pytest.approx([0.9, 0.9])


@pytest.mark.slow
def test_the_specs_do_not_import_the_compiler_of_torch():
    pytest.importorskip("torch")
    code = """
import sys, torch
from expkit.drivers.torch.optimizers import OptimizerSet
from expkit.optimizers import SGD, Adam
w = torch.nn.Parameter(torch.ones(3)); v = torch.nn.Parameter(torch.ones(3))
optimizers = OptimizerSet({"a": Adam(params="w"), "b": SGD(params="v")}, {"w": w, "v": v})
(w * v).sum().backward()
optimizers.step([1.0, 1.0]); optimizers.load_state(optimizers.state())
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
