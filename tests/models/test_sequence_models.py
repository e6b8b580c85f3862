"""What padding and the order of time may change in the models of sequences."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import DataError
from expkit.models import paddle as paddle_models
from expkit.models import torch as torch_models


@pytest.fixture(params=["torch", "paddle"])
def framework(request):
    """The bundled models of a framework, and what makes a tensor from an array."""
    module = pytest.importorskip(request.param)
    if request.param == "torch":
        return torch_models, module.tensor
    return paddle_models, module.to_tensor


both_models = pytest.mark.parametrize("name", ["TextCnn", "Transformer"])


def make(models, name, **changes):
    arguments = {"vocab_size": 9, "out_features": 3}
    if name == "TextCnn":
        arguments |= {"embedding_dim": 4, "num_filters": 6, "dropout": 0.0}
    else:
        arguments |= {"max_length": 12, "d_model": 8, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
    model = getattr(models, name)(**{**arguments, **changes})
    model.initialize(0)
    state = model.state_dict()
    for path, value in state.items():
        if path.endswith("bias"):  # 0 at first, when what is left out could not be told from it
            value.detach()[:] = 0.5
    return model


def padded(*texts, length, pad_id=0):
    return np.array([[*text, *[pad_id] * (length - len(text))] for text in texts])


TEXTS = ([1, 2, 3, 4, 5], [6, 7], [8])


@both_models
@pytest.mark.parametrize("pad_id", [0, 5])
def test_padding_changes_nothing(framework, name, pad_id):
    models, tensor = framework
    texts = ([1, 2, 3, 4, 6], [6, 7], [8])
    model = make(models, name, pad_id=pad_id)
    short = model(tensor(padded(*texts, length=5, pad_id=pad_id))).detach().numpy()
    long = model(tensor(padded(*texts, length=12, pad_id=pad_id))).detach().numpy()
    np.testing.assert_allclose(short, long, rtol=1e-5, atol=1e-6)
    alone = model(tensor(padded([6, 7], length=2))).detach().numpy()
    np.testing.assert_allclose(alone[0], long[1], rtol=1e-5, atol=1e-6)


@both_models
def test_each_token_counts(framework, name):
    models, tensor = framework
    model = make(models, name)
    text = [1, 2, 3, 4, 5]
    plain = model(tensor(padded(text, length=6))).detach().numpy()
    for place in range(5):
        changed = list(text)
        changed[place] = 8
        other = model(tensor(padded(changed, length=6))).detach().numpy()
        assert np.abs(other - plain).max() > 1e-4


@both_models
def test_a_sequence_of_padding_alone_gives_numbers(framework, name):
    models, tensor = framework
    model = make(models, name)
    output = model(tensor(padded([1, 2], [], length=4)))
    output.sum().backward()
    assert np.isfinite(output.detach().numpy()).all()
    for path, parameter in model.named_parameters():
        assert np.isfinite(parameter.grad.numpy()).all(), path


def test_the_padding_embedding_is_zero_and_gets_no_gradient(framework):
    models, tensor = framework
    model = make(models, "TextCnn", pad_id=5)
    model(tensor(padded(*TEXTS, length=6, pad_id=5))).sum().backward()
    assert not model.embedding.weight[5].detach().numpy().any()
    assert not model.embedding.weight.grad.numpy()[5].any()
    assert model.embedding.weight.grad.numpy()[1].any()


def test_a_language_model_does_not_see_what_comes(framework):
    models, tensor = framework
    model = make(models, "Transformer", task="language_model")
    tokens = np.array([[1, 2, 3, 4, 5, 6]])
    plain = model(tensor(tokens)).detach().numpy()
    assert plain.shape == (1, 6, 3)
    for place in range(6):
        changed = tokens.copy()
        changed[0, place] = 8
        difference = np.abs(model(tensor(changed)).detach().numpy() - plain).max(axis=(0, 2))
        assert (difference[:place] < 1e-6).all()
        assert (difference[place:] > 1e-5).all()


def test_a_language_model_takes_the_padding_token_as_a_token(framework):
    models, tensor = framework
    model = make(models, "Transformer", task="language_model")
    model(tensor(np.array([[0, 1, 0, 2]]))).square().sum().backward()
    assert model.tokens.weight.grad.numpy()[0].any()


def test_a_classifier_knows_the_order_of_tokens(framework):
    models, tensor = framework
    model = make(models, "Transformer")
    forth = model(tensor(np.array([[1, 2, 3]]))).detach().numpy()
    back = model(tensor(np.array([[3, 2, 1]]))).detach().numpy()
    assert np.abs(forth - back).max() > 1e-4


def test_a_sequence_beyond_max_length_is_refused(framework):
    models, tensor = framework
    model = make(models, "Transformer", max_length=4)
    assert tuple(model(tensor(np.ones((1, 4), np.int64))).shape) == (1, 3)
    with pytest.raises(DataError, match=r"5 tokens.*max_length=4"):
        model(tensor(np.ones((1, 5), np.int64)))
