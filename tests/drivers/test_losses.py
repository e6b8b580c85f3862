import importlib
import re

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.drivers.numpy import losses as reference
from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
)

RNG = np.random.default_rng(0)
LABELS = np.array([0, 3, 2, 1, 3, 0])
SEQUENCES = np.array([[0, 3, 2, 1], [1, -100, 0, 2], [-100, -100, 3, -100]])
CLASSES = {
    "plain": (CrossEntropy(), LABELS),
    "smoothed": (CrossEntropy(label_smoothing=0.2), LABELS),
    "weighted": (CrossEntropy(class_weights=(1.0, 2.0, 0.5, 4.0)), LABELS),
    "ignoring": (CrossEntropy(ignore_index=3), LABELS),
    "sequences": (CrossEntropy(label_smoothing=0.1), np.abs(SEQUENCES) % 4),
    "padded": (CrossEntropy(ignore_index=-100), SEQUENCES),
    "padded_smoothed": (CrossEntropy(ignore_index=-100, label_smoothing=0.1), SEQUENCES),
    "padded_weighted": (
        CrossEntropy(ignore_index=-100, class_weights=(1.0, 2.0, 0.5, 4.0)),
        SEQUENCES,
    ),
}
NUMBERS = {
    "mse": MeanSquaredError(),
    "mae": MeanAbsoluteError(),
    "huber": Huber(delta=0.75),
    "bce": BinaryCrossEntropy(),
}


def logits_for(labels):
    return 3 * RNG.normal(size=(*labels.shape, 4))


def numbers_case(name, output_shape, target_shape):
    target = RNG.uniform(size=target_shape)
    return 3 * RNG.normal(size=output_shape), target


class Numpy:
    name = "numpy"

    def run(self, spec, output, target, dtype="float64"):
        """Values, weights and the gradient of sum(values * cotangent) with cotangent 1, 2, 3 ..."""
        outputs, fields = {"output": output.astype(dtype)}, {"y": target}
        values, weights = reference.loss_function(spec)(outputs, fields)
        gradient = reference.loss_gradient(spec)(outputs, fields, cotangent(values.shape))
        return values, weights, gradient

    def call(self, spec, outputs, fields):
        return reference.loss_function(spec)(outputs, fields)


class Torch:
    name = "torch"

    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.losses = importlib.import_module("expkit.drivers.torch.losses")

    def run(self, spec, output, target, dtype="float64"):
        tensor = self.torch.tensor(output, dtype=getattr(self.torch, dtype), requires_grad=True)
        values, weights = self.call(spec, {"output": tensor}, {"y": target})
        (values * self.torch.from_numpy(cotangent(values.shape))).sum().backward()
        weights = None if weights is None else weights.numpy()
        return values.detach().numpy(), weights, tensor.grad.to(self.torch.float64).numpy()

    def call(self, spec, outputs, fields):
        return self.losses.loss_function(spec)(
            outputs, {name: self.torch.tensor(v) for name, v in fields.items()}
        )


class Paddle:
    name = "paddle"

    def __init__(self):
        self.paddle = pytest.importorskip("paddle")
        self.losses = importlib.import_module("expkit.drivers.paddle.losses")

    def run(self, spec, output, target, dtype="float64"):
        tensor = self.paddle.to_tensor(output, dtype="float64").astype(dtype)
        tensor.stop_gradient = False
        values, weights = self.call(spec, {"output": tensor}, {"y": target})
        (
            values * self.paddle.to_tensor(cotangent(tuple(values.shape))).astype(values.dtype)
        ).sum().backward()
        weights = None if weights is None else weights.numpy()
        return values.numpy(), weights, tensor.grad.astype("float64").numpy()

    def call(self, spec, outputs, fields):
        return self.losses.loss_function(spec)(
            outputs, {n: self.paddle.to_tensor(v) for n, v in fields.items()}
        )


def cotangent(shape):
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


@pytest.fixture(scope="module", params=[Numpy, Torch, Paddle], ids=lambda kind: kind.name)
def backend(request):
    return request.param()


@pytest.mark.parametrize("name", CLASSES)
def test_cross_entropy_has_the_values_weights_and_gradient_of_the_reference(backend, name):
    spec, labels = CLASSES[name]
    logits = logits_for(labels)
    expected = Numpy().run(spec, logits, labels)
    for got, want in zip(backend.run(spec, logits, labels), expected, strict=True):
        if want is None:
            assert got is None
        else:
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "shapes", [((6,), (6,)), ((6, 1), (6,)), ((6,), (6, 1)), ((6, 1), (6, 1)), ((6, 3), (6, 3))]
)
@pytest.mark.parametrize("name", NUMBERS)
def test_losses_over_numbers_have_the_values_and_gradient_of_the_reference(backend, name, shapes):
    output, target = numbers_case(name, *shapes)
    values, weights, gradient = backend.run(NUMBERS[name], output, target)
    want, _, want_gradient = Numpy().run(NUMBERS[name], output, target)
    assert values.shape == (6,)
    assert weights is None
    assert gradient.shape == output.shape
    np.testing.assert_allclose(values, want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, want_gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [*CLASSES, *NUMBERS])
def test_the_reference_gradient_is_that_of_finite_differences(name):
    if name in CLASSES:
        spec, target = CLASSES[name]
        output = logits_for(target)
    else:
        spec = NUMBERS[name]
        output, target = numbers_case(name, (3, 2), (3, 2))
    _, _, gradient = Numpy().run(spec, output, target)
    step = 1e-6
    for position in np.ndindex(output.shape):
        ahead, behind = output.copy(), output.copy()
        ahead[position] += step
        behind[position] -= step
        upper, lower = (Numpy().run(spec, moved, target)[0] for moved in (ahead, behind))
        slope = ((upper - lower) * cotangent(upper.shape)).sum() / (2 * step)
        assert gradient[position] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes(backend):
    values, _, _ = backend.run(CrossEntropy(), np.zeros((3, 4)), np.array([0, 1, 3]))
    np.testing.assert_allclose(values, np.log(4))


def test_values_known_by_hand(backend):
    output, target = np.array([0.5, -2.0]), np.array([0.0, 1.0])
    np.testing.assert_allclose(backend.run(MeanSquaredError(), output, target)[0], [0.25, 9.0])
    np.testing.assert_allclose(backend.run(MeanAbsoluteError(), output, target)[0], [0.5, 3.0])
    np.testing.assert_allclose(backend.run(Huber(delta=2.0), output, target)[0], [0.125, 4.0])
    np.testing.assert_allclose(
        backend.run(BinaryCrossEntropy(), output, target)[0],
        [np.log1p(np.exp(0.5)), np.log1p(np.exp(2.0))],
    )


def test_positions_are_averaged_within_a_sample_where_all_count(backend):
    labels = np.array([[0, 1], [2, 3]])
    logits = logits_for(labels)
    values, weights, _ = backend.run(CrossEntropy(), logits, labels)
    flat, _, _ = backend.run(CrossEntropy(), logits.reshape(4, 4), labels.ravel())
    assert weights is None
    np.testing.assert_allclose(values, flat.reshape(2, 2).mean(axis=1))


def test_ignored_positions_have_value_weight_and_gradient_0(backend):
    spec = CrossEntropy(ignore_index=-100, label_smoothing=0.1)
    values, weights, gradient = backend.run(spec, logits_for(SEQUENCES), SEQUENCES)
    np.testing.assert_array_equal(weights, SEQUENCES != -100)
    ignored = SEQUENCES == -100
    assert not values[ignored].any()
    assert not gradient[ignored].any()
    assert (values[~ignored] > 0).all()


def test_class_weights_stand_beside_the_values_and_not_in_them(backend):
    weights = (1.0, 2.0, 0.5, 4.0)
    logits = logits_for(LABELS)
    plain, _, _ = backend.run(CrossEntropy(), logits, LABELS)
    values, got, _ = backend.run(CrossEntropy(class_weights=weights), logits, LABELS)
    np.testing.assert_allclose(values, plain)
    np.testing.assert_allclose(got, np.array(weights)[LABELS])


@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8"])
def test_labels_of_any_integer_type_give_the_same(backend, dtype):
    logits = logits_for(LABELS)
    want = backend.run(CrossEntropy(), logits, LABELS)[0]
    np.testing.assert_array_equal(
        backend.run(CrossEntropy(), logits, LABELS.astype(dtype))[0], want
    )


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_labels_that_are_no_integers_are_refused(backend, dtype):
    with pytest.raises(DataError, match=r"field 'y' .*(float32|bool|BOOL|FLOAT32).*allowed: int64"):
        backend.run(CrossEntropy(), logits_for(LABELS), LABELS.astype(dtype))


@pytest.mark.parametrize("label", [-1, -100, 4])
def test_no_label_outside_the_classes_passes_in_silence(backend, label):
    labels = np.where(LABELS == 2, label, LABELS)
    with pytest.raises((IndexError, ValueError, DataError), match=str(label)):
        backend.run(CrossEntropy(), logits_for(labels), labels)


@pytest.mark.parametrize(
    ("output", "labels"), [((6, 4), (6, 1)), ((6,), (6,)), ((6, 3, 4), (6, 4)), ((6, 4), (5,))]
)
def test_labels_of_another_shape_are_refused(backend, output, labels):
    with pytest.raises(
        DataError, match=re.escape(f"shape {output}") + ".*" + re.escape(f"{labels}")
    ):
        backend.run(CrossEntropy(), np.zeros(output), np.zeros(labels, np.int64))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("output", "target"), [((6, 1), (5,)), ((6, 3), (6,)), ((6, 3), (6, 1)), ((6, 6), (6,))]
)
def test_numbers_are_never_broadcast(backend, name, output, target):
    with pytest.raises(
        DataError, match=re.escape(f"shape {output}") + ".*" + re.escape(f"{target}")
    ):
        backend.run(NUMBERS[name], np.zeros(output), np.zeros(target))


def test_integer_targets_of_a_regression_are_taken_as_numbers(backend):
    values, _, _ = backend.run(MeanSquaredError(), np.array([1.5, 2.0]), np.array([1, 4]))
    np.testing.assert_allclose(values, [0.25, 4.0])


@pytest.mark.parametrize("spec", [CrossEntropy(), MeanSquaredError()], ids=["classes", "numbers"])
def test_an_absent_output_or_field_is_named_with_those_that_are_there(backend, spec):
    with pytest.raises(
        ConfigError,
        match=r"loss.output: the model gave no output 'output'; there are: logits, hidden",
    ):
        backend.call(spec, {"logits": None, "hidden": None}, {"y": LABELS})
    with pytest.raises(
        ConfigError, match=r"loss.target: the batch has no field 'y'; there are: label"
    ) as caught:
        backend.call(spec, {"output": None}, {"label": LABELS})
    assert caught.value.problems[0].hint == "loss.target=label"


def test_what_is_no_spec_is_refused(backend):
    with pytest.raises(ConfigError, match=r"is str; .*allowed: (CrossEntropy|loss=cross_entropy)"):
        backend.call("mse", {}, {})


def test_extreme_logits_give_finite_losses(backend):
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]])
    values, _, gradient = backend.run(CrossEntropy(), logits, np.array([0, 0]), "float32")
    np.testing.assert_allclose(values, [0, 2e4])  # Paddle's own cross_entropy gives 64 here
    assert np.isfinite(gradient).all()
    values, _, _ = backend.run(
        BinaryCrossEntropy(), np.array([1e4, -1e4]), np.array([1.0, 1.0]), "float32"
    )
    np.testing.assert_allclose(values, [0, 1e4])


@pytest.mark.parametrize("spec", [CrossEntropy(), MeanSquaredError()], ids=["classes", "numbers"])
@pytest.mark.parametrize("kind", [Torch, Paddle], ids=lambda kind: kind.name)
def test_half_precision_outputs_are_judged_in_float32(kind, spec):
    logits = np.round(logits_for(LABELS) * 8) / 8  # exact in bfloat16
    target = LABELS if isinstance(spec, CrossEntropy) else np.zeros_like(logits)
    values, _, _ = kind().run(spec, logits, target, "bfloat16")
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, Numpy().run(spec, logits, target)[0], rtol=1e-6, atol=1e-6)
