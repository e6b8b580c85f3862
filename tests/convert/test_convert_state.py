"""State in, state out: what needs no framework."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from expkit.checkpoint.convert import FRAMEWORKS, _in_names_of, convert_state, weights_for
from expkit.core.errors import CheckpointError, MismatchError
from expkit.losses import CrossEntropy
from tests.cases.parts import make_driver, make_mlp

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def state(framework="torch", linear=("a.weight",), **arrays):
    model = {"a.weight": WEIGHT, "a.bias": np.zeros(2, np.float32), "b.weight": WEIGHT} | arrays
    origin = {"framework": framework, "world_size": 2, "linear_weights": list(linear)}
    return {"model": model, "origin": origin, "optimizer": {}, "trainer": {}}


def numpy_driver():
    driver = make_driver("numpy")
    driver.prepare(make_mlp("numpy"), None, CrossEntropy())
    return driver


def test_linear_weights_are_transposed_and_nothing_else_changes():
    for target in ("paddle", "numpy"):
        there = convert_state(state(), target)
        np.testing.assert_array_equal(there["model"]["a.weight"], WEIGHT.T)
        np.testing.assert_array_equal(there["model"]["b.weight"], WEIGHT)
        assert there.keys() == {"model", "origin"}
        assert there["origin"] == {
            "framework": target,
            "world_size": 2,
            "linear_weights": ["a.weight"],
            "converted_from": "torch",
        }


def test_types_stay_as_they_are():
    for dtype in (np.float16, np.float64, ml_dtypes.bfloat16):
        half = np.arange(6).reshape(2, 3).astype(dtype)
        there = convert_state(state(**{"a.weight": half}), "paddle")["model"]["a.weight"]
        assert there.dtype == dtype
        assert there.flags.c_contiguous
        np.testing.assert_array_equal(there.T, half)


def test_paddle_and_numpy_lay_out_alike():
    there = convert_state(state("paddle"), "numpy")
    np.testing.assert_array_equal(there["model"]["a.weight"], WEIGHT)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_framework_is_refused(framework):
    with pytest.raises(MismatchError, match=f"is of {framework} already"):
        convert_state(state(framework), framework)


@pytest.mark.parametrize(
    "origin",
    [
        None,
        {},
        "torch",
        ["torch"],
        {"framework": "torch"},
        {"framework": "torch", "linear_weights": "a.weight"},
        {"framework": "torch", "linear_weights": [[2]]},
        {"framework": ["torch"], "linear_weights": []},
        {"framework": "other", "linear_weights": []},
    ],
)
def test_a_state_that_does_not_say_what_it_is_of_is_refused(origin):
    old = state() | {"origin": origin}
    if origin is None:
        del old["origin"]
    with pytest.raises(MismatchError, match="does not say its framework") as caught:
        convert_state(old, "paddle")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (None, "model is absent"),
        ([WEIGHT], "model is of type list"),
        ("a.weight", "model is of type str"),
        ({"a": {"weight": WEIGHT}}, "'a' in model is of type dict"),
        ({"a.weight": [[1.0]]}, "'a.weight' in model is of type list"),
    ],
)
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_state_without_weights_is_refused(model, told, framework):
    one = state(framework) | {"model": model}
    if model is None:
        del one["model"]
    with pytest.raises(CheckpointError, match=told):
        convert_state(one, "paddle")
    with pytest.raises(CheckpointError, match=told):
        weights_for(numpy_driver(), one)


@pytest.mark.parametrize(
    "changed",
    [
        {"framework": ["numpy"]},
        {"converted_from": 3},
        {"converted_from": "other"},
        {"linear_weights": [[2]]},
        {"linear_weights": {}},
    ],
)
def test_converted_weights_whose_layers_are_not_known_are_not_taken(changed):
    origin = {"framework": "numpy", "linear_weights": [], "converted_from": "torch"} | changed
    with pytest.raises(MismatchError, match="does not say its framework"):
        weights_for(numpy_driver(), {"model": {}, "origin": origin})


@pytest.mark.parametrize("shape", [(), (2,), (2, 2, 2)])
def test_projections_that_do_not_fit_together_are_not_packed(shape):
    arrays = {f"{each}_proj.weight": np.zeros((2, 2)) for each in "qk"}
    arrays["v_proj.weight"] = np.zeros(shape)
    with pytest.raises(MismatchError, match=r"^in_proj_weight cannot be made of arrays of shape"):
        _in_names_of(["in_proj_weight"], arrays, [], "torch")


def test_a_linear_weight_that_is_none_is_refused():
    with pytest.raises(MismatchError, match=r"^a\.bias has shape \(2,\)"):
        convert_state(state(linear=["a.bias"]), "paddle")
    with pytest.raises(MismatchError, match=r"^c\.weight .* not in the checkpoint"):
        convert_state(state(linear=["c.weight"]), "paddle")


def test_half_of_batch_normalisation_is_no_batch_normalisation():
    model = convert_state(state("paddle", **{"n._mean": WEIGHT}), "torch")["model"]
    assert "n._mean" in model


def test_a_packed_name_without_attention_is_left_as_it_is():
    model = convert_state(state(**{"ssm.in_proj_weight": WEIGHT}), "paddle")["model"]
    assert "ssm.in_proj_weight" in model


def test_attention_at_the_root_of_a_model_is_unpacked():
    packed = {"in_proj_weight": np.eye(6, 2), "in_proj_bias": np.arange(6.0)}
    one = state(linear=["out_proj.weight"], **packed, **{"out_proj.weight": np.eye(2)})
    model = convert_state(one, "paddle")["model"]
    np.testing.assert_array_equal(model["k_proj.weight"], np.eye(6, 2)[2:4].T)
    np.testing.assert_array_equal(model["v_proj.bias"], [4.0, 5.0])


def test_weights_of_the_own_framework_are_taken_as_they_are():
    driver, model = numpy_driver(), {"anything": WEIGHT}
    for origin in ({}, {"origin": {"framework": "numpy", "linear_weights": []}}):
        assert weights_for(driver, {"model": model, **origin}) is model
