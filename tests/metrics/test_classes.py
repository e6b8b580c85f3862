"""Metrics over classes against scikit-learn, whatever the batches."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.errors import ConfigError, DataError
from expkit.core.monitor import Monitor
from expkit.metrics import Accuracy, ConfusionMatrix, PrecisionRecallF1, TopKAccuracy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sklearn import metrics as sk

QUICK = settings(max_examples=30, deadline=None)


@st.composite
def scored(draw, weighted=True):
    """Scores, labels, weights (with padding) and places to cut batches."""
    n, classes = draw(st.integers(2, 40)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.normal(size=(n, classes)).astype(np.float32)
    labels = rng.integers(0, classes, n)
    weights = None
    if weighted and draw(st.booleans()):
        weights = rng.choice([0.0, 1.0, 0.5, 2.0], n).astype(np.float32)
        weights[0] = 1.0
    cuts = draw(st.lists(st.integers(0, n), max_size=4))
    return scores, labels, weights, cuts


@QUICK
@given(scored())
def test_accuracy_is_that_of_scikit_learn(feed, case):
    scores, labels, weights, cuts = case
    got = feed(Accuracy(), scores, labels, weights, cuts).compute()
    assert got[""] == pytest.approx(
        sk.accuracy_score(labels, scores.argmax(1), sample_weight=weights), rel=1e-12
    )


@QUICK
@given(scored(), st.integers(1, 6))
def test_top_k_accuracy_is_that_of_scikit_learn(feed, case, k):
    scores, labels, weights, cuts = case
    classes = scores.shape[1]
    k = min(k, classes - 1)
    got = feed(TopKAccuracy(k), scores, labels, weights, cuts).compute()[""]
    if classes == 2:  # scikit-learn takes one score per sample there
        want = sk.accuracy_score(labels, scores.argmax(1), sample_weight=weights)
    else:
        want = sk.top_k_accuracy_score(
            labels, scores, k=k, labels=range(classes), sample_weight=weights
        )
    assert got == pytest.approx(want, rel=1e-12)


@QUICK
@given(scored(), st.sampled_from(["macro", "micro", "weighted"]), st.sampled_from([None, 6, 9]))
def test_precision_recall_and_f1_are_those_of_scikit_learn(feed, case, average, num_classes):
    scores, labels, weights, cuts = case
    got = feed(
        PrecisionRecallF1(average, num_classes=num_classes), scores, labels, weights, cuts
    ).compute()
    counts = slice(None) if weights is None else weights > 0
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        labels[counts],
        scores.argmax(1)[counts],
        average=average,
        sample_weight=None if weights is None else weights[counts],
        zero_division=0,
    )
    assert got == {
        name: pytest.approx(value)
        for name, value in (("", f1), ("precision", precision), ("recall", recall))
    }


@QUICK
@given(scored())
def test_the_scores_of_each_class_are_those_of_scikit_learn(feed, case):
    scores, labels, weights, cuts = case
    got = feed(PrecisionRecallF1("none"), scores, labels, weights, cuts).compute()
    counts = slice(None) if weights is None else weights > 0
    true, guess = labels[counts], scores.argmax(1)[counts]
    occurs = np.union1d(true, guess)
    want = sk.precision_recall_fscore_support(
        true,
        guess,
        labels=occurs,
        sample_weight=None if weights is None else weights[counts],
        zero_division=0,
    )
    for name, values in zip(("precision/", "recall/", ""), want[:3], strict=True):
        for label in range(occurs[-1] + 1):
            value = got[f"{name}{label}"]
            if label in occurs:
                assert value == pytest.approx(values[occurs.tolist().index(label)])
            else:
                assert np.isnan(value)
    assert len(got) == 3 * (occurs[-1] + 1)


@QUICK
@given(scored())
def test_the_scores_of_class_1_of_two_are_those_of_scikit_learn(feed, case):
    scores, labels, weights, cuts = case
    labels = np.minimum(labels, 1)
    for output in (scores[:, 0], scores[:, :2]):
        guess = output > 0 if output.ndim == 1 else output.argmax(1)
        got = feed(PrecisionRecallF1("binary"), output, labels, weights, cuts).compute()
        counts = np.ones(len(labels)) if weights is None else weights
        want = sk.precision_recall_fscore_support(
            labels, guess, average="binary", sample_weight=weights, zero_division=0
        )
        if counts @ (labels | guess):
            assert [got["precision"], got["recall"], got[""]] == pytest.approx(want[:3])
        else:  # class 1 does not occur
            assert np.isnan(list(got.values())).all()


def test_a_label_beyond_two_classes_is_refused_by_the_binary_average(feed):
    with pytest.raises(DataError, match=r"label 2; allowed by num_classes=2: 0 to 1"):
        feed(PrecisionRecallF1("binary"), np.array([0, 1]), np.array([0, 2]))


@QUICK
@given(scored())
def test_the_confusion_matrix_is_that_of_scikit_learn(feed, case):
    scores, labels, weights, cuts = case
    metric = feed(ConfusionMatrix(num_classes=7), scores, labels, weights, cuts)
    want = sk.confusion_matrix(labels, scores.argmax(1), labels=range(7), sample_weight=weights)
    np.testing.assert_allclose(metric.matrix, want)
    grown = feed(ConfusionMatrix(), scores, labels, weights, cuts).matrix
    size = len(grown)
    np.testing.assert_array_equal(grown, metric.matrix[:size, :size])
    assert metric.matrix.sum() == pytest.approx(grown.sum())
    assert (
        metric.compute()[f"{labels[0]}/{scores[0].argmax()}"]
        == metric.matrix[labels[0], scores[0].argmax()]
    )


KINDS = [Accuracy, PrecisionRecallF1, lambda: TopKAccuracy(2)]
IDS = ["accuracy", "f1", "top_k"]


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_over_no_samples_the_value_is_nan(make, feed):
    assert np.isnan(make().compute()[""])
    padding = feed(make(), np.eye(3, dtype=np.float32), np.arange(3), np.zeros(3, np.float32))
    assert np.isnan(padding.compute()[""])


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_reset_forgets(make, feed):
    metric = feed(make(), np.eye(3), np.array([1, 2, 0]))
    metric.reset()
    assert feed(metric, np.eye(3), np.arange(3)).compute()[""] == 1.0


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_padding_does_not_count_whatever_it_holds(make, feed):
    scores = np.array([[2, 1, 0], [0, 2, 1], [np.nan, np.nan, np.nan]])
    weights = np.array([1, 1, 0], np.float32)
    assert feed(make(), scores, np.array([0, 1, 2]), weights).compute()[""] == 1.0


def test_token_accuracy_counts_tokens_and_not_their_padding(feed):
    metric = Accuracy(ignore_index=0)
    first, second = np.array([[1, 2, 3, 4, 5, 6, 7]]), np.array([[1, 2, 3, 4, 5, 0, 0]])
    feed(metric, np.array([[1, 2, 3, 4, 5, 6, 8]]), first)  # 6 of 7
    feed(metric, np.array([[1, 2, 3, 9, 9, 0, 0]]), second)  # 3 of 5, two of padding
    assert metric.compute()[""] == 0.75


def test_counts_are_exact_beyond_the_integers_of_float32():
    metric = Accuracy()
    metric.state["sums"] += (2.0**24, 2.0**24)
    metric.update({"output": np.array([[1.0, 0.0]])}, {"y": np.array([1])}, None)
    assert metric.state["sums"].tolist() == [2**24, 2**24 + 1]


def test_one_logit_above_0_is_class_1(feed):
    logits, labels = np.array([1.5, -0.5, 0.1, -2.0]), np.array([1, 1, 0, 0])
    for output in (logits, logits[:, None]):
        for target in (labels, labels.astype(np.float32)):
            assert feed(Accuracy(), output, target).compute()[""] == 0.5
    assert feed(Accuracy(), logits[:, None], labels[:, None]).compute()[""] == 0.5
    assert feed(ConfusionMatrix(), logits, labels).matrix.tolist() == [[1, 1], [1, 1]]


def test_of_equal_scores_the_lower_class_wins(feed):
    scores, labels = np.zeros((3, 3)), np.arange(3)
    assert feed(Accuracy(), scores, labels).compute()[""] == pytest.approx(1 / 3)
    for k in (1, 2, 3):
        assert feed(TopKAccuracy(k), scores, labels).compute()[""] == pytest.approx(k / 3)


AVERAGES = ("macro", "micro", "weighted", "none")
KINDS_OF_TWO = {  # over scores of at least two classes
    "accuracy": Accuracy,
    "top_k": lambda **options: TopKAccuracy(2, **options),
    **{
        f"f1_{each}": lambda average=each, **options: PrecisionRecallF1(average, **options)
        for each in AVERAGES
    },
}


@pytest.mark.parametrize("make", KINDS_OF_TWO.values(), ids=KINDS_OF_TWO)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_nan_score_makes_the_metric_nan_whatever_comes_after(make, place, feed):
    scores = np.eye(3, dtype=np.float32)[[0, 1, 0, 1, 2]]
    scores[1, place] = np.nan
    got = feed(make(), scores, np.array([0, 1, 0, 1, 2]), cuts=[1, 2, 4]).compute()
    assert np.isnan(list(got.values())).all()


@pytest.mark.parametrize("make", KINDS_OF_TWO.values(), ids=KINDS_OF_TWO)
def test_a_nan_score_of_an_ignored_token_does_not_count(make, feed):
    scores = np.eye(3)[[[0, 1, 2], [0, 1, 1]]]
    labels = np.array([[0, 1, -1], [0, 1, 1]])
    finite = feed(make(ignore_index=-1), scores, labels).compute()
    scores[0, 2] = np.nan
    assert feed(make(ignore_index=-1), scores, labels).compute() == finite


@pytest.mark.parametrize("average", ["macro", "binary"])
def test_one_logit_that_is_nan_makes_the_metric_nan(average, feed):
    logits, labels = np.array([1.0, np.nan, -1.0]), np.array([1, 0, 0])
    for output in (logits, logits[:, None]):
        assert np.isnan(feed(Accuracy(), output, labels).compute()[""])
        numbers = feed(PrecisionRecallF1(average), output, labels).compute()
        assert np.isnan(list(numbers.values())).all()


def test_a_position_for_which_no_label_is_predicted_makes_the_metric_nan(feed):
    predicted, labels = np.array([[0, -1, 1]]), np.array([[0, 1, 1]])
    for make in (Accuracy, PrecisionRecallF1):
        assert np.isnan(feed(make(), predicted, labels).compute()[""])
        ignored = np.array([[0, -1, 1]])
        assert feed(make(ignore_index=-1), predicted, ignored).compute()[""] == 1.0
    matrix = feed(ConfusionMatrix(), predicted, labels).matrix
    np.testing.assert_array_equal(matrix, [[1, 0], [np.nan, np.nan]])


def test_a_nan_score_makes_the_row_of_its_label_nan_in_the_confusion_matrix(feed):
    scores = np.eye(3)[[0, 1, 2, 1]]
    scores[1] = np.nan
    labels, cuts = np.array([0, 1, 2, 1]), [2]
    for metric in (ConfusionMatrix(), ConfusionMatrix(num_classes=3)):
        matrix = feed(metric, scores, labels, cuts=cuts).matrix
        np.testing.assert_array_equal(matrix, [[1, 0, 0], [np.nan] * 3, [0, 0, 1]])
        assert np.isnan(metric.compute()["1/2"])


def test_a_nan_score_is_never_the_best(feed):
    got = feed(Accuracy(), np.full((3, 2), np.nan), np.zeros(3, np.int64)).compute()[""]
    monitor = Monitor.parse("accuracy")
    score = monitor.score({"accuracy": got})
    assert not monitor.better(score, None)
    assert monitor.better(monitor.score({"accuracy": 0.0}), score)


def test_top_k_leaves_ignored_tokens_out(feed):
    scores = np.array([[[3, 2, 1], [3, 2, 1], [3, 2, 1]]])
    assert (
        feed(TopKAccuracy(2, ignore_index=-1), scores, np.array([[1, 2, -1]])).compute()[""] == 0.5
    )


def test_f1_leaves_ignored_tokens_out(feed):
    guess, true = np.array([[0, 1, 1]]), np.array([[0, 1, -100]])
    assert feed(PrecisionRecallF1(ignore_index=-100), guess, true).compute()[""] == 1.0


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_an_absent_output_or_field_is_named_with_those_that_are_there(make, feed):
    with pytest.raises(ConfigError, match=r"reads the output 'output'; there are: logits"):
        feed(make(), np.eye(3), np.arange(3), name="logits")
    with pytest.raises(ConfigError, match=r"reads the target 'y'; there are: label"):
        feed(make(), np.eye(3), np.arange(3), field="label")


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_real_numbers_are_no_labels(make, feed):
    with pytest.raises(DataError, match="float64"):
        feed(make(), np.eye(3), np.array([0.5, 1.0, 2.0]))


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_labels_of_another_shape_are_refused_with_both_shapes(make):
    with pytest.raises(DataError, match=re.escape("(3, 3)") + ".*" + re.escape("(3, 1)")):
        make().update({"output": np.eye(3)}, {"y": np.zeros((3, 1), np.int64)}, None)


@pytest.mark.parametrize("make", [ConfusionMatrix, PrecisionRecallF1])
def test_a_label_beyond_the_given_classes_is_refused(make, feed):
    with pytest.raises(DataError, match=r"label 3; allowed by num_classes=3: 0 to 2"):
        feed(make(num_classes=3), np.array([0, 1]), np.array([0, 3]))


@pytest.mark.parametrize("make", [Accuracy, ConfusionMatrix, PrecisionRecallF1, TopKAccuracy])
@pytest.mark.parametrize("label", [-1, 7])
def test_a_label_that_is_none_of_the_classes_of_the_scores_is_refused(make, label, feed):
    expected = rf"{make.__name__} met the label {label} in field 'y'; allowed: 0 to 5; .*"
    scores, labels = np.eye(6), np.array([0, 1, 2, 3, 4, label])
    with pytest.raises(DataError, match=expected + rf"metrics\.<name>\.ignore_index={label}$"):
        feed(make(), scores, labels)
    feed(make(ignore_index=label), scores, labels)


@pytest.mark.parametrize("make", [Accuracy, ConfusionMatrix, PrecisionRecallF1])
def test_one_logit_or_predicted_labels_allow_the_labels_that_they_can_mean(make, feed):
    labels = np.array([0, 2])
    with pytest.raises(DataError, match=r"label 2 in field 'y'; allowed: 0 to 1;"):
        feed(make(), np.array([-0.5, 0.5]), labels)
    feed(make(), np.array([0, 1]), labels)
    with pytest.raises(DataError, match=r"label -1 in field 'y'; allowed: 0 and above;"):
        feed(make(), np.array([0, 1]), np.array([0, -1]))


def test_top_k_refuses_a_label_or_k_beyond_the_classes(feed):
    with pytest.raises(DataError, match=r"label 3 in field 'y'; allowed: 0 to 2"):
        feed(TopKAccuracy(2), np.eye(3), np.array([0, 1, 3]))
    with pytest.raises(DataError, match=r"k=5, but output 'output' has 3 classes"):
        feed(TopKAccuracy(5), np.eye(3), np.arange(3))


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda: TopKAccuracy(0), "an integer from 1"),
        (lambda: TopKAccuracy(2.0), "an integer from 1"),
        (lambda: PrecisionRecallF1("samples"), "macro, micro, weighted, none, binary"),
        (lambda: PrecisionRecallF1("binary", num_classes=3), "2, or null"),
        (lambda: PrecisionRecallF1(num_classes=0), "an integer from 1, or null"),
        (lambda: ConfusionMatrix(num_classes=True), "an integer from 1, or null"),
    ],
)
def test_an_option_that_means_nothing_is_refused(make, allowed):
    with pytest.raises(ConfigError, match=allowed):
        make()
