"""The area under the ROC curve against scikit-learn, ties and all."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.errors import ConfigError, DataError
from expkit.metrics import AUROC

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sklearn.metrics import roc_auc_score

QUICK = settings(max_examples=40, deadline=None)


@st.composite
def scored(draw, classes):
    """Scores with ties, labels of each class, weights (with padding) and places to cut batches."""
    n = draw(st.integers(2 * classes, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.normal(size=(n, classes)).astype(np.float32)
    if draw(st.booleans()):
        scores = scores.round()
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    weights = None
    if draw(st.booleans()):
        weights = rng.choice([0.0, 1.0, 0.5, 2.0], n).astype(np.float32)
        weights[:classes] = 1.0
    cuts = draw(st.lists(st.integers(0, n), max_size=4))
    return scores, labels, weights, cuts


def softmax(scores):
    shares = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return shares / [[math.fsum(row)] for row in shares]  # the same in any order of classes


@QUICK
@given(scored(2))
def test_of_two_classes_it_is_that_of_scikit_learn(feed, case):
    scores, labels, weights, cuts = case
    want = roc_auc_score(labels, scores[:, 1], sample_weight=weights)
    for output in (scores[:, 1], scores[:, 1:]):
        got = feed(AUROC(), output, labels, weights, cuts).compute()
        assert got == {"": pytest.approx(want, rel=1e-12)}
    logits = scores[:, 1].astype(np.float64) - scores[:, 0]
    assert feed(AUROC(), scores, labels, weights, cuts).compute() == {
        "": pytest.approx(roc_auc_score(labels, logits, sample_weight=weights), rel=1e-12)
    }


@QUICK
@given(st.integers(3, 5).flatmap(scored), st.sampled_from(["macro", "weighted"]))
def test_of_several_classes_it_is_that_of_scikit_learn_one_against_the_rest(feed, case, average):
    scores, labels, weights, cuts = case
    want = roc_auc_score(
        labels, softmax(scores), multi_class="ovr", average=average, sample_weight=weights
    )
    got = feed(AUROC(average), scores, labels, weights, cuts).compute()
    assert got == {"": pytest.approx(want, rel=1e-12)}


@QUICK
@given(scored(4))
def test_each_class_may_be_reported(feed, case):
    scores, labels, weights, cuts = case
    got = feed(AUROC("none"), scores, labels, weights, cuts).compute()
    shares = softmax(scores)
    assert got == {
        str(label): pytest.approx(
            roc_auc_score(labels == label, shares[:, label], sample_weight=weights), rel=1e-12
        )
        for label in range(4)
    }


def test_a_tie_counts_half(feed):
    assert feed(AUROC(), np.zeros(4), np.array([0, 1, 1, 0])).compute() == {"": 0.5}
    assert feed(AUROC(), np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1])).compute() == {"": 0.875}


def test_equal_scores_in_another_order_of_the_other_classes_are_a_tie(feed):
    scores = np.array([[0.3, 0.1, 0.2, 0.7], [0.3, 0.7, 0.1, 0.2], [0.3, 0.2, 0.7, 0.1]])
    assert feed(AUROC("none"), scores, np.array([0, 1, 0])).compute()["0"] == 0.5


def test_confident_logits_are_told_apart(feed):
    """The probabilities of both are 1.0 in float64."""
    scores = np.array([[0.0, 50.0], [0.0, 60.0]], np.float32)
    assert feed(AUROC(), scores, np.array([0, 1])).compute() == {"": 1.0}


@pytest.mark.parametrize("label", [0, 1])
def test_of_samples_of_one_class_alone_it_is_nan(feed, label):
    assert np.isnan(feed(AUROC(), np.arange(3.0), np.full(3, label)).compute()[""])
    weights = np.array([1, 1, 0], np.float32)
    labels = np.array([label, label, 1 - label])
    assert np.isnan(feed(AUROC(), np.arange(3.0), labels, weights).compute()[""])


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_a_class_that_does_not_occur_is_left_out_of_the_mean(feed, average):
    scores, labels = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 2
    each = feed(AUROC("none"), scores, labels).compute()
    assert np.isnan(each["2"])
    counts = {"macro": (1, 1), "weighted": (5, 4)}[average]
    want = np.average([each["0"], each["1"]], weights=counts)
    assert feed(AUROC(average), scores, labels).compute()[""] == pytest.approx(want)
    assert np.isnan(feed(AUROC(average), scores, np.ones(9, int)).compute()[""])


def test_over_no_samples_it_is_nan(feed):
    assert np.isnan(AUROC().compute()[""])
    padding = feed(AUROC(), np.arange(3.0), np.array([0, 1, 1]), np.zeros(3, np.float32))
    assert np.isnan(padding.compute()[""])


def test_padding_does_not_count_whatever_it_holds(feed):
    weights = np.array([1, 1, 0], np.float32)
    assert feed(AUROC(), np.array([0, 1, np.nan]), np.array([0, 1, 7]), weights).compute() == {
        "": 1.0
    }


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_a_nan_score_makes_it_nan(feed, classes):
    scores = np.ones((4, classes))
    scores[1] = np.nan
    assert np.isnan(feed(AUROC(), scores, np.array([0, 1, 0, 1])).compute()[""])


def test_tokens_count_and_ignored_ones_do_not(feed):
    logits, labels = (
        np.array([[1.0, 2.0, 9.0], [3.0, -9.0, 0.0]]),
        np.array([[0, 1, -1], [1, 0, 0]]),
    )
    assert feed(AUROC(ignore_index=-1), logits, labels).compute() == {"": 1.0}
    weights = np.array([1, 0], np.float32)
    assert feed(AUROC(ignore_index=-1), logits, labels, weights).compute() == {"": 1.0}


def test_reset_forgets(feed):
    metric = feed(AUROC(), np.arange(2.0), np.array([1, 0]))
    metric.reset()
    assert feed(metric, np.arange(2.0), np.array([0, 1])).compute() == {"": 1.0}


@pytest.mark.parametrize(
    ("output", "allowed"), [(np.arange(2.0), 1), (np.eye(2), 1), (np.eye(3)[:2], 2)]
)
def test_a_label_beyond_the_scores_is_refused(feed, output, allowed):
    for label in (-1, allowed + 1):
        with pytest.raises(
            DataError, match=rf"label {label} in field 'y'; allowed: 0 to {allowed}"
        ):
            feed(AUROC(), output, np.array([0, label]))


def test_what_fits_no_reading_is_refused(feed):
    with pytest.raises(DataError, match=re.escape("(3, 3)") + ".*" + re.escape("(3, 1)")):
        feed(AUROC(), np.eye(3), np.zeros((3, 1), np.int64))
    with pytest.raises(DataError, match="float64"):
        feed(AUROC(), np.eye(3), np.array([0.5, 1.0, 2.0]))
    with pytest.raises(ConfigError, match=r"reads the target 'y'; there are: label"):
        feed(AUROC(), np.eye(3), np.arange(3), field="label")
    with pytest.raises(ConfigError, match="allowed: macro, weighted, none"):
        AUROC("micro")
