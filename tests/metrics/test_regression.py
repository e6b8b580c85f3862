"""Errors of real-valued predictions against scikit-learn, whatever the batches."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.errors import ConfigError, DataError
from expkit.metrics import R2, MeanAbsoluteError, MeanSquaredError, RootMeanSquaredError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sklearn import metrics as sk

PEERS = {
    MeanSquaredError: sk.mean_squared_error,
    RootMeanSquaredError: sk.root_mean_squared_error,
    MeanAbsoluteError: sk.mean_absolute_error,
    R2: sk.r2_score,
}


@st.composite
def predicted(draw):
    """Predictions, targets, weights (with padding) and places to cut batches."""
    n, outputs = draw(st.integers(3, 40)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    targets = rng.normal(draw(st.sampled_from([0.0, 100.0])), 2.0, size=(n, outputs))
    predictions = targets + rng.normal(size=(n, outputs))
    weights = None
    if draw(st.booleans()):
        weights = rng.choice([0.0, 1.0, 0.5, 2.0], n).astype(np.float32)
        weights[:3] = 1.0
    return predictions, targets, weights, draw(st.lists(st.integers(0, n), max_size=4))


@settings(max_examples=30, deadline=None)
@given(predicted(), st.sampled_from(list(PEERS)))
def test_errors_are_those_of_scikit_learn(feed, case, kind):
    predictions, targets, weights, cuts = case
    if (
        kind is RootMeanSquaredError
    ):  # several outputs: one root over all here, a mean of roots there
        predictions, targets = predictions[:, :1], targets[:, :1]
    got = feed(kind(), predictions, targets, weights, cuts).compute()
    assert got == {
        "": pytest.approx(PEERS[kind](targets, predictions, sample_weight=weights), rel=1e-9)
    }


@settings(max_examples=30, deadline=None)
@given(predicted(), st.integers(2, 4))
def test_r2_over_ranks_is_that_of_one_rank(feed, case, world_size):
    predictions, targets, weights, cuts = case
    whole = feed(R2(), predictions, targets, weights, cuts).compute()[""]
    ranks = []
    for rank in range(world_size):  # the last ranks may have nothing at all
        mine = slice(rank * 20, (rank + 1) * 20)
        part = None if weights is None else weights[mine]
        ranks.append(feed(R2(), predictions[mine], targets[mine], part))
    merged = R2()
    merged.merge([metric.state for metric in ranks])
    assert merged.compute()[""] == pytest.approx(whole, rel=1e-12)


def test_r2_keeps_its_digits_where_the_mean_dwarfs_the_spread(feed):
    rng = np.random.default_rng(0)
    targets = 1e8 + rng.normal(size=10_000)
    predictions = targets + 0.5 * rng.normal(size=10_000)
    got = feed(R2(), predictions, targets, cuts=range(0, 10_000, 64)).compute()[""]
    assert got == pytest.approx(sk.r2_score(targets, predictions), rel=1e-9)


def test_r2_of_equal_targets_is_1_where_exact_and_0_elsewhere(feed):
    targets = np.full(7, 0.1)
    assert feed(R2(), targets, targets, cuts=[3]).compute()[""] == 1.0
    assert feed(R2(), targets + 1, targets, cuts=[3]).compute()[""] == 0.0


def test_r2_of_fewer_than_two_samples_is_nan(feed):
    assert np.isnan(R2().compute()[""])
    assert np.isnan(feed(R2(), np.array([1.0]), np.array([1.0])).compute()[""])
    padded = feed(R2(), np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1, 0], np.float32))
    assert np.isnan(padded.compute()[""])


@pytest.mark.parametrize("kind", [MeanSquaredError, RootMeanSquaredError, MeanAbsoluteError])
def test_over_no_samples_the_value_is_nan(kind):
    assert np.isnan(kind().compute()[""])


@pytest.mark.parametrize("kind", PEERS)
def test_padding_does_not_count_whatever_it_holds(kind, feed):
    predictions, targets = np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0, np.inf])
    got = feed(kind(), predictions, targets, np.array([1, 1, 0], np.float32)).compute()[""]
    assert got == (1.0 if kind is R2 else 0.0)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("target", [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]])
@pytest.mark.parametrize("where", ["output", "target"])
def test_one_nan_makes_the_metric_nan_whatever_comes_after(kind, target, where, feed):
    arrays = {"output": np.ones((3, 2)), "target": np.column_stack([target, target])}
    arrays[where][1, 0] = np.nan
    for cuts in ([], [1], [1, 2]):
        got = feed(kind(), arrays["output"], arrays["target"], cuts=cuts).compute()[""]
        assert np.isnan(got)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1), (4, 1)), ((4,), (4,))])
def test_a_last_axis_of_one_is_dropped_and_not_broadcast(kind, shapes, feed):
    predictions, targets = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.0, 2.0, 4.0, 4.0])
    got = feed(kind(), predictions.reshape(shapes[0]), targets.reshape(shapes[1])).compute()[""]
    assert got == pytest.approx(PEERS[kind](targets, predictions))


@pytest.mark.parametrize("kind", PEERS)
def test_other_shapes_are_refused_with_both(kind):
    with pytest.raises(DataError, match=re.escape("(4, 4)") + ".*" + re.escape("(4,)")):
        kind().update({"output": np.zeros((4, 4))}, {"y": np.zeros(4)}, None)


@pytest.mark.parametrize("kind", PEERS)
def test_text_is_no_number(kind, feed):
    with pytest.raises(DataError, match="allowed: real numbers"):
        feed(kind(), np.zeros(2), np.array(["a", "b"]))


@pytest.mark.parametrize("kind", PEERS)
def test_an_absent_field_is_named_with_those_that_are_there(kind, feed):
    with pytest.raises(
        ConfigError, match=rf"{kind.__name__} reads the target 'y'; there are: label"
    ):
        feed(kind(), np.zeros(2), np.zeros(2), field="label")
