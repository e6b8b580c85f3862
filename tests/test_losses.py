import re
from dataclasses import fields
from pathlib import Path

import expkit.conf
import numpy as np
import pytest
import yaml

import expkit.losses
from expkit.core.errors import ConfigError, DataError
from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
)


@pytest.mark.parametrize(
    ("kind", "options", "key"),
    [
        (CrossEntropy, {"label_smoothing": 1.0}, "loss.label_smoothing"),
        (CrossEntropy, {"label_smoothing": -0.1}, "loss.label_smoothing"),
        (CrossEntropy, {"label_smoothing": "0.1"}, "loss.label_smoothing"),
        (CrossEntropy, {"label_smoothing": float("nan")}, "loss.label_smoothing"),
        (CrossEntropy, {"ignore_index": 1.0}, "loss.ignore_index"),
        (CrossEntropy, {"ignore_index": True}, "loss.ignore_index"),
        (CrossEntropy, {"class_weights": []}, "loss.class_weights"),
        (CrossEntropy, {"class_weights": [0.0, 0.0]}, "loss.class_weights"),
        (CrossEntropy, {"class_weights": [1.0, -1.0]}, "loss.class_weights"),
        (CrossEntropy, {"class_weights": "balanced"}, "loss.class_weights"),
        (CrossEntropy, {"output": ""}, "loss.output"),
        (MeanSquaredError, {"target": None}, "loss.target"),
        (Huber, {"delta": 0}, "loss.delta"),
        (Huber, {"delta": float("inf")}, "loss.delta"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_its_key(kind, options, key):
    with pytest.raises(ConfigError) as caught:
        kind(**options)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert repr(next(iter(options.values()))) in problem.message
    assert "allowed" in problem.message
    assert problem.hint.startswith(f"{key}=")


def test_class_weights_of_any_sequence_become_a_tuple_of_floats():
    assert CrossEntropy(class_weights=[1, 2]).class_weights == (1.0, 2.0)


def test_specs_are_equal_by_value_and_cannot_be_changed():
    assert CrossEntropy(label_smoothing=0.1) == CrossEntropy(label_smoothing=0.1)
    with pytest.raises(AttributeError):
        MeanSquaredError().target = "z"


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_good_labels_pass(dtype):
    CrossEntropy().check(np.array([0, 9, 3], dtype), (32, 10))


def test_the_first_label_out_of_range_is_named_with_what_is_allowed():
    with pytest.raises(
        DataError,
        match=r"field 'y' holds the label 10 at position 2; allowed: 0 to 9,.* 10 classes",
    ):
        CrossEntropy().check(np.array([0, 9, 10, -1]), (32, 10))


def test_a_label_out_of_range_in_a_sequence_is_named_by_sample_and_place():
    with pytest.raises(DataError, match=re.escape("label -1 at position (1, 2)")):
        CrossEntropy().check(np.array([[0, 1, 2], [0, 1, -1]]), (2, 3, 5))


def test_the_ignored_label_may_lie_outside_the_classes_and_others_may_not():
    loss = CrossEntropy(ignore_index=-100)
    loss.check(np.array([0, -100, 4]), (3, 5))
    with pytest.raises(DataError, match=r"label -1 at position 1; allowed: 0 to 4, or -100"):
        loss.check(np.array([0, -1, -100]), (3, 5))


@pytest.mark.parametrize("dtype", ["float32", "bool", "U3", "object"])
def test_labels_that_are_no_integers_are_refused_by_field_and_type(dtype):
    with pytest.raises(DataError, match=r"field 'label' .* type .*; allowed: int64"):
        CrossEntropy(target="label").check(np.array([0, 1]).astype(dtype), (2, 2))


@pytest.mark.parametrize(
    ("targets", "output"),
    [((4, 1), (4, 3)), ((4,), (4,)), ((4,), (4, 5, 3)), ((4, 6), (4, 5, 3)), ((4, 5), (4, 5))],
)
def test_labels_of_another_shape_are_refused_with_both_shapes(targets, output):
    with pytest.raises(DataError, match=re.escape(str(output)) + ".*" + re.escape(str(targets))):
        CrossEntropy().check(np.zeros(targets, np.int64), output)


def test_the_data_set_may_have_more_samples_than_the_output_that_gave_the_shape():
    CrossEntropy().check(np.zeros((100, 5), np.int64), (4, 5, 3))
    MeanSquaredError().check(np.zeros(100, np.float32), (4, 1))


def test_class_weights_that_do_not_fit_the_classes_are_refused():
    with pytest.raises(DataError, match=r"loss.class_weights has 2 weights, .* has 3 classes"):
        CrossEntropy(class_weights=(1, 2)).check(np.array([0, 1]), (2, 3))


NUMBERS = [MeanSquaredError(), MeanAbsoluteError(), Huber(), BinaryCrossEntropy()]


@pytest.mark.parametrize("loss", NUMBERS, ids=lambda loss: type(loss).__name__)
def test_numbers_may_lack_or_have_a_last_axis_of_one_and_nothing_else(loss):
    for targets, output in (((4,), (4, 1)), ((4, 1), (4,)), ((4, 1), (4, 1)), ((4, 3), (4, 3))):
        loss.check(np.zeros(targets, np.float32), output)
    for targets, output in (((4,), (4, 3)), ((4, 3), (4, 1)), ((4, 1, 1), (4,))):
        with pytest.raises(DataError, match="allowed: equal shapes"):
            loss.check(np.zeros(targets, np.float32), output)


@pytest.mark.parametrize("loss", NUMBERS, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_target_that_is_not_finite_is_named_by_position(loss, bad):
    with pytest.raises(DataError, match=rf"field 'y' holds {bad} at position 1; allowed: finite"):
        loss.check(np.array([0.0, bad]), (2, 1))


def test_text_is_no_target_of_a_regression():
    with pytest.raises(
        DataError, match=r"field 'y' is of type <U1; MeanSquaredError allows numbers"
    ):
        MeanSquaredError().check(np.array(["a", "b"]), (2,))


def test_binary_targets_lie_between_0_and_1():
    BinaryCrossEntropy().check(np.array([True, False]), (2, 1))
    BinaryCrossEntropy().check(np.array([0.0, 0.3, 1.0]), (3, 1))
    with pytest.raises(
        DataError, match=r"holds 2 at position 1; .*allows 0 to 1; .*loss=cross_entropy"
    ):
        BinaryCrossEntropy().check(np.array([1, 2]), (2,))


OPTIONS = sorted(Path(expkit.conf.__path__[0], "loss").glob("*.yaml"))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path.stem)
def test_each_option_of_the_loss_group_is_a_spec_with_its_defaults(path):
    options = yaml.safe_load(path.read_text())
    if path.stem == "none":
        assert options == {}
        return
    module, _, kind = options.pop("_target_").rpartition(".")
    assert module == "expkit.losses"
    loss = getattr(expkit.losses, kind)
    assert loss(**options) == loss()
    assert options.keys() == {field.name for field in fields(loss)}
