import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expkit.metrics import MeanLoss, Perplexity


def update(metric, loss, weights=None, loss_weight=None):
    outputs = {"loss": np.array(loss, np.float32)}
    if loss_weight is not None:
        outputs["loss_weight"] = np.array(loss_weight, np.float32)
    metric.update(outputs, {}, None if weights is None else np.array(weights, np.float32))
    return metric


def test_the_mean_loss_is_over_samples_and_not_over_batches():
    metric = update(update(MeanLoss(), [10, 10]), [9])
    assert metric.compute() == {"": pytest.approx(29 / 3, rel=1e-12)}


def test_the_mean_loss_of_tokens_is_over_tokens():
    metric = update(update(MeanLoss(), [6, 2], loss_weight=[3, 1]), [0], loss_weight=[0])
    assert metric.compute() == {"": 2.0}


def test_padding_does_not_count_whatever_it_holds():
    assert update(MeanLoss(), [1, np.nan], weights=[1, 0]).compute() == {"": 1.0}
    assert update(MeanLoss(), [4, np.inf], weights=[1, 0], loss_weight=[2, 3]).compute() == {
        "": 2.0
    }


def test_samples_count_by_their_weight():
    assert update(MeanLoss(), [1, 4], weights=[2, 1]).compute() == {"": 2.0}
    assert update(MeanLoss(), [2, 4], weights=[2, 1], loss_weight=[1, 2]).compute() == {"": 2.0}


def test_a_loss_that_is_nan_shows():
    assert np.isnan(update(MeanLoss(), [1, np.nan]).compute()[""])


def test_perplexity_of_a_uniform_guess_is_the_number_of_tokens():
    metric = update(update(Perplexity(), [np.log(50)] * 3), [np.log(50)])
    assert metric.compute()[""] == pytest.approx(50, rel=1e-6)


def test_perplexity_weighs_tokens_and_not_sequences():
    metric = update(Perplexity(), [3 * np.log(2), np.log(32)], loss_weight=[3, 1])
    assert metric.compute()[""] == pytest.approx(4, rel=1e-6)


@given(
    st.lists(
        st.tuples(st.floats(0, 5, width=32), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0])),
        min_size=1,
    ),
    st.integers(0, 9),
)
def test_perplexity_is_that_of_numpy_whatever_the_batches(samples, cut):
    loss, tokens, weights = (np.array(column, np.float32) for column in zip(*samples, strict=True))
    weights[0] = 1.0
    metric = Perplexity()
    for part in (slice(None, cut), slice(cut, None)):
        update(metric, loss[part], weights[part], tokens[part])
    factors = np.float64(weights)
    want = np.exp(np.average(np.float64(loss) / tokens, weights=factors * tokens))
    assert metric.compute() == {"": pytest.approx(want, rel=1e-12)}


def test_perplexity_beyond_float64_is_infinite():
    assert update(Perplexity(), [1e4]).compute() == {"": np.inf}


@pytest.mark.parametrize("kind", [MeanLoss, Perplexity])
def test_over_no_samples_the_value_is_nan(kind):
    assert np.isnan(kind().compute()[""])
    assert np.isnan(update(kind(), [1.0], weights=[0]).compute()[""])
