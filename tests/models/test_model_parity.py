"""The same model in each framework: paths, first weights, outputs, gradients, statistics."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.models import numpy as numpy_models
from expkit.models import paddle as paddle_models
from expkit.models import torch as torch_models
from expkit.models.initializers import initial_value

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

STREAM = np.random.default_rng(0)
TABLE = STREAM.standard_normal((6, 8)).astype(np.float32)
IMAGES = STREAM.standard_normal((3, 2, 7, 6)).astype(np.float32)
TOKENS = np.array([[1, 2, 3, 4, 5, 6], [7, 1, 1, 2, 0, 0], [8, 0, 0, 0, 0, 0], [0] * 6])

MLP = {"in_features": 8, "hidden": (5, 4), "out_features": 3}
CNN = {"in_channels": 2, "image_size": (7, 6), "channels": (3, 4), "hidden": 5, "out_features": 3}
TEXT_CNN = {"vocab_size": 9, "embedding_dim": 4, "num_filters": 3, "out_features": 3, "dropout": 0}
TRANSFORMER = {
    "vocab_size": 9,
    "max_length": 8,
    "out_features": 3,
    "d_model": 8,
    "n_heads": 2,
    "d_ff": 12,
    "dropout": 0.0,
}
CASES = {
    "mlp-linear": ("Mlp", {**MLP, "hidden": ()}, TABLE),
    "mlp-relu": ("Mlp", MLP, TABLE),
    "mlp-gelu": ("Mlp", {**MLP, "activation": "gelu"}, TABLE),
    "mlp-tanh": ("Mlp", {**MLP, "activation": "tanh"}, TABLE),
    "mlp-batch": ("Mlp", {**MLP, "norm": "batch"}, TABLE),
    "mlp-layer": ("Mlp", {**MLP, "norm": "layer"}, TABLE),
    "cnn": ("Cnn", CNN, IMAGES),
    "cnn-batch": ("Cnn", {**CNN, "norm": "batch"}, IMAGES),
    "text_cnn": ("TextCnn", TEXT_CNN, TOKENS),
    "transformer": ("Transformer", TRANSFORMER, TOKENS),
    "language_model": ("Transformer", {**TRANSFORMER, "task": "language_model"}, TOKENS),
}
NUMPY_CASES = [
    name for name in CASES if name.startswith("mlp") and name[4:] not in ("batch", "layer")
]


def build(name):
    model, arguments, x = CASES[name]
    pair = getattr(torch_models, model)(**arguments), getattr(paddle_models, model)(**arguments)
    for one in pair:
        one.initialize(0)
    return *pair, x


def torch_arrays(model, attribute=None):
    """Parameters (or their gradients) by path; Linear kernels in the shape (in, out)."""
    found = {}
    for prefix, module in model.named_modules():
        for path, parameter in module.named_parameters(prefix, recurse=False):
            value = (parameter if attribute is None else parameter.grad).detach().numpy()
            found[path] = value.T if isinstance(module, torch.nn.Linear) else value
    return found


def paddle_arrays(model, attribute=None):
    return {
        path: (parameter if attribute is None else parameter.grad).numpy()
        for path, parameter in model.named_parameters()
    }


def assert_close(left, right):
    assert list(left) == list(right)
    for path, value in left.items():
        scale = np.abs(right[path]).max()
        np.testing.assert_allclose(
            value, right[path], rtol=1e-5, atol=1e-5 * scale + 1e-7, err_msg=path
        )


@pytest.mark.parametrize("name", CASES)
def test_paths_shapes_and_first_weights_are_equal(name):
    torch_model, paddle_model, _ = build(name)
    left, right = torch_arrays(torch_model), paddle_arrays(paddle_model)
    assert list(left) == list(right)
    for path, value in left.items():
        np.testing.assert_array_equal(value, right[path], err_msg=path)
    assert list(torch_model.state_dict()) == list(paddle_model.state_dict())


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_equal(name):
    torch_model, paddle_model, x = build(name)
    left, right = torch_model(torch.tensor(x)), paddle_model(paddle.to_tensor(x))
    np.testing.assert_allclose(left.detach().numpy(), right.numpy(), rtol=1e-5, atol=1e-6)
    left.square().sum().backward()
    right.square().sum().backward()
    assert_close(torch_arrays(torch_model, "grad"), paddle_arrays(paddle_model, "grad"))


@pytest.mark.parametrize("name", NUMPY_CASES)
def test_numpy_agrees_with_torch(name):
    torch_model, _, x = build(name)
    model = numpy_models.Mlp(**CASES[name][1])
    model.initialize(0)
    expected = torch_model(torch.tensor(x))
    output = model.forward(x)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    expected.square().sum().backward()
    model.backward(2 * output)
    gradients = {path: parameter.grad for path, parameter in model.named_parameters().items()}
    assert_close(gradients, torch_arrays(torch_model, "grad"))
    assert output.dtype == np.float32


@pytest.mark.parametrize("name", ["mlp-batch", "cnn-batch"])
def test_batch_norm_keeps_the_same_statistics_in_training(name):
    torch_model, paddle_model, x = build(name)
    for count in (3, 2, 3):
        batch = count * x[:count] + count
        torch_model(torch.tensor(batch))
        paddle_model(paddle.to_tensor(batch))
    left = {path: buffer.numpy() for path, buffer in torch_model.named_buffers()}
    right = {path: buffer.numpy() for path, buffer in paddle_model.named_buffers()}
    assert_close(left, right)
    assert int(left["layers.norm_0.num_batches_tracked"]) == 3
    torch_model.eval()
    paddle_model.eval()
    expected = torch_model(torch.tensor(x)).detach().numpy()
    output = paddle_model(paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    for path, buffer in paddle_model.named_buffers():
        np.testing.assert_array_equal(buffer.numpy(), right[path])


def test_initialize_forgets_the_statistics():
    for model, x in zip(
        build("mlp-batch")[:2], (torch.tensor(TABLE), paddle.to_tensor(TABLE)), strict=True
    ):
        fresh = {path: buffer.numpy().copy() for path, buffer in model.named_buffers()}
        model(x)
        model.initialize(0)
        for path, buffer in model.named_buffers():
            np.testing.assert_array_equal(buffer.numpy(), fresh[path])


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface")
def test_batch_norm_keeps_the_same_statistics_in_a_compiled_paddle_graph():
    eager, compiled = build("mlp-batch")[1], build("mlp-batch")[1]
    paddle.jit.to_static(compiled, full_graph=True)
    for _ in range(2):
        expected, output = eager(paddle.to_tensor(TABLE)), compiled(paddle.to_tensor(TABLE))
        np.testing.assert_allclose(output.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    buffers = [{k: v.numpy() for k, v in one.named_buffers()} for one in (compiled, eager)]
    assert_close(*buffers)


def test_batch_norm_refuses_a_batch_of_one_in_training():
    _, model, x = build("mlp-batch")
    with pytest.raises(DataError, match=r"data\.drop_last=true"):
        model(paddle.to_tensor(x[:1]))
    model.eval()
    assert model(paddle.to_tensor(x[:1])).shape == [1, 3]


@pytest.mark.parametrize("name", CASES)
def test_first_weights_do_not_depend_on_the_frameworks_random_state(name):
    before = torch_arrays(build(name)[0])
    torch.manual_seed(99)
    paddle.seed(99)
    torch_model, paddle_model, _ = build(name)
    for arrays in (torch_arrays(torch_model), paddle_arrays(paddle_model)):
        for path, value in arrays.items():
            np.testing.assert_array_equal(value, before[path])
    torch_model.initialize(1)
    after = torch_arrays(torch_model)
    assert any(not np.array_equal(value, before[path]) for path, value in after.items())


def test_linear_kernels_are_drawn_in_the_shape_in_out():
    model, _, _ = build("mlp-relu")
    expected = initial_value("linear", "layers.linear_0.weight", (8, 5), seed=0)
    np.testing.assert_array_equal(model.layers.linear_0.weight.detach().numpy(), expected.T)


@pytest.mark.parametrize("models", [torch_models, paddle_models])
def test_models_refuse_bad_arguments(models):
    for model, arguments, wrong in [
        ("Mlp", MLP, {"activation": "swish"}),
        ("Cnn", CNN, {"channels": (1, 1, 1)}),
        ("TextCnn", TEXT_CNN, {"kernel_sizes": ()}),
        ("Transformer", TRANSFORMER, {"n_heads": 3}),
    ]:
        with pytest.raises(ConfigError, match=f"model.{next(iter(wrong))}"):
            getattr(models, model)(**{**arguments, **wrong})


def test_dropout_leaves_paths_alone_and_acts_in_training_only():
    for model, arguments, x in (CASES[name] for name in ("mlp-relu", "cnn", "transformer")):
        for models, tensor in ((torch_models, torch.tensor), (paddle_models, paddle.to_tensor)):
            plain = getattr(models, model)(**{**arguments, "dropout": 0.0})
            dropping = getattr(models, model)(**{**arguments, "dropout": 0.5})
            for one in (plain, dropping):
                one.initialize(0)
            assert list(plain.state_dict()) == list(dropping.state_dict())
            first, second = dropping(tensor(x)), dropping(tensor(x))
            assert not np.array_equal(first.detach().numpy(), second.detach().numpy())
            plain.eval()
            dropping.eval()
            expected = plain(tensor(x)).detach().numpy()
            np.testing.assert_array_equal(dropping(tensor(x)).detach().numpy(), expected)


def test_an_mlp_flattens_images():
    for models, tensor in ((torch_models, torch.tensor), (paddle_models, paddle.to_tensor)):
        model = models.Mlp(**MLP)
        model.initialize(0)
        image = model(tensor(TABLE.reshape(6, 1, 2, 4))).detach().numpy()
        np.testing.assert_array_equal(image, model(tensor(TABLE)).detach().numpy())
