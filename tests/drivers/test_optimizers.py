from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from expkit.core.errors import CheckpointError, ConfigError, MismatchError
from expkit.optimizers import SGD, Adam, AdamW
from tests.drivers.optimizer_problem import (
    TOOLS,
    WEIGHTS,
    Problem,
    assert_equal,
    gradients,
    numpy_tools,
    resumed,
    torch_tools,
)

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


@pytest.fixture(params=list(TOOLS))
def tools(request):
    return TOOLS[request.param]()


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
    with pytest.raises(CheckpointError, match=r"state of optimizer default.*lacks hidden\.bias/"):
        more.load_state(fewer.state())


def test_a_state_of_another_kind_of_optimizer_is_refused(tools):
    state = Problem(tools, SGD(momentum=0.9)).optimizers.state()
    with pytest.raises(MismatchError, match="the checkpoint has that of another optimizer"):
        Problem(tools, Adam()).optimizers.load_state(state)


def test_a_state_of_another_shape_names_the_path(tools):
    state = Problem(tools, Adam()).optimizers.state()
    key = next(key for key in state["default"] if key.startswith("hidden.weight/"))
    state["default"][key] = np.zeros((2, 2), np.float32)
    with pytest.raises(CheckpointError, match=r"hidden\.weight/.* has shape \(2, 2\)"):
        Problem(tools, Adam()).optimizers.load_state(state)


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
