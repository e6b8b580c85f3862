from __future__ import annotations

import numpy as np
import pytest

from expkit.models.initializers import initial_value
from expkit.models.numpy import Mlp


def test_values_are_a_function_of_seed_and_path():
    first = initial_value("linear", "layers.output.weight", (4, 3), seed=1)
    np.random.seed(7)
    again = initial_value("linear", "layers.output.weight", (4, 3), seed=1)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, initial_value("linear", "layers.output.weight", (4, 3), 2))
    assert not np.array_equal(first, initial_value("linear", "layers.hidden.weight", (4, 3), 1))


def test_values_stay_what_they_were_in_earlier_versions():
    linear = initial_value("linear", "layers.output.weight", (2, 2), seed=0)
    table = initial_value("embedding", "tokens.weight", (1, 4), seed=0)
    np.testing.assert_allclose(linear, [[-1.0955834, 0.1714878], [-0.1654696, 0.4853310]], 1e-6)
    np.testing.assert_allclose(table, [[0.2559782, -0.4329830, 0.3363135, 0.6904863]], 1e-6)


@pytest.mark.parametrize(
    ("kind", "shape", "bound"),
    [
        ("linear", (300, 200), np.sqrt(6 / 500)),
        ("conv", (64, 32, 3, 3), np.sqrt(6 / 288)),
        ("conv", (64, 100, 5), np.sqrt(6 / 500)),
    ],
)
def test_kernels_are_uniform_within_the_bound_of_their_fan(kind, shape, bound):
    value = initial_value(kind, "weight", shape, seed=3)
    assert value.shape == shape
    assert 0.99 * bound < np.abs(value).max() <= bound * (1 + 1e-6)
    assert value.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)
    assert abs(value.mean()) < 0.02 * bound


def test_embeddings_have_length_one_on_average():
    table = initial_value("embedding", "tokens.weight", (500, 64), seed=0)
    assert np.mean(np.sum(table**2, axis=1)) == pytest.approx(1.0, rel=0.02)


def test_constants_are_constant():
    np.testing.assert_array_equal(initial_value("zeros", "bias", (3,), 0), np.zeros(3))
    np.testing.assert_array_equal(initial_value("ones", "weight", (3,), 0), np.ones(3))


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(
        ValueError, match="'dense'; allowed: linear, conv, embedding, lstm, zeros, ones"
    ):
        initial_value("dense", "weight", (2, 2), 0)


def test_a_hidden_layer_more_leaves_the_other_first_weights_alone():
    small = Mlp(in_features=4, hidden=[6], out_features=2)
    large = Mlp(in_features=4, hidden=[6, 6], out_features=2)
    small.initialize(5)
    large.initialize(5)
    for path, parameter in small.named_parameters().items():
        np.testing.assert_array_equal(parameter.value, large.named_parameters()[path].value)
