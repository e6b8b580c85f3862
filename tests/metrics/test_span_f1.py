"""F1 of spans against seqeval, in each scheme and out of it."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

from expkit.core.errors import ConfigError, DataError
from expkit.metrics import SpanF1

QUICK = settings(max_examples=60, deadline=None)
BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", *(f"{letter}-{kind}" for kind in ("PER", "A-B") for letter in "BIES")]
BILOU = ["O", *(f"{letter}-PER" for letter in "BILU")]
SCHEMES = {
    "bio": BIO,
    "bioes": BIOES,
    "bilou": BILOU,
    "b_i": ["B", "I"],
    "bmes": ["B", "M", "E", "S"],
}
IN_SEQEVAL = {"M": "I", "L": "E", "U": "S"}


@st.composite
def tagged(draw):
    """Tags, true and predicted ids (often alike) padded to the longest, and places to cut."""
    tags = draw(st.sampled_from(list(SCHEMES.values())))
    n, longest = draw(st.integers(1, 8)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    true = rng.integers(0, len(tags), (n, longest))
    other = rng.integers(0, len(tags), (n, longest))
    predicted = np.where(rng.random((n, longest)) < draw(st.sampled_from([0.0, 0.8])), true, other)
    true[np.arange(longest) >= rng.integers(1, longest + 1, n)[:, None]] = -1
    return tags, true, predicted, draw(st.lists(st.integers(0, n), max_size=3))


def by_seqeval(tags, true, predicted, average):
    """Its precision, recall and F1; padding is left out."""
    names = [IN_SEQEVAL.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return precision_recall_fscore_support(
            [[names[each] for each in row[row >= 0]] for row in true],
            [
                [names[each] for each in guess[row >= 0]]
                for row, guess in zip(true, predicted, strict=True)
            ],
            average=average,
            zero_division=0,
        )


@QUICK
@given(tagged())
def test_precision_recall_and_f1_are_those_of_seqeval(feed, case):
    tags, true, predicted, cuts = case
    got = feed(SpanF1(tags, ignore_index=-1), predicted, true, cuts=cuts).compute()
    want = by_seqeval(tags, true, predicted, "micro")
    if all(np.isnan(value) for value in got.values()):  # no span at all: 0 there
        assert want[:3] == (0, 0, 0)
        assert (true <= 0).all()
    else:
        assert [got["precision"], got["recall"], got[""]] == pytest.approx(want[:3], rel=1e-12)


@QUICK
@given(tagged())
def test_the_numbers_of_each_type_are_those_of_seqeval(feed, case):
    tags, true, predicted, cuts = case
    metric = SpanF1(tags, ignore_index=-1, per_type=True)
    got = feed(metric, predicted, true, cuts=cuts).compute()
    kinds = sorted({tag[2:] or "_" for tag in tags if tag != "O"})
    occurring = [kind for kind in kinds if not np.isnan(got[kind])]
    want = by_seqeval(tags, true, predicted, None)
    for name, values in zip(("precision/", "recall/", ""), want[:3], strict=True):
        assert [got[name + kind] for kind in occurring] == pytest.approx(values.tolist())
    assert len(got) == 3 + 3 * len(kinds)


def ids(tags, *rows):
    return np.array([[tags.index(tag) for tag in row.split()] for row in rows])


def test_a_span_is_right_with_the_same_ends_and_type(feed):
    true = ids(BIO, "B-PER I-PER O B-LOC O", "B-PER O B-PER I-PER I-PER")
    guess = ids(BIO, "B-PER I-PER O B-PER O", "B-PER O B-PER I-PER O")
    got = feed(SpanF1(BIO), guess, true).compute()
    assert got == {"": 0.5, "precision": 0.5, "recall": 0.5}


def test_words_of_a_segmented_text_are_spans(feed):
    tags = SCHEMES["bmes"]
    got = feed(SpanF1(tags), ids(tags, "S S B E S"), ids(tags, "B E B E S")).compute()
    assert got == {"": pytest.approx(4 / 7), "precision": 0.5, "recall": pytest.approx(2 / 3)}


def test_a_span_ends_with_its_sequence(feed):
    true = ids(["B", "I"], "B I", "I B")  # three spans, not one over both rows
    assert feed(SpanF1(["B", "I"]), true, true).state["counts"].tolist() == [[3], [3], [3]]


def test_scores_are_taken_with_the_tags_last(feed):
    true = ids(BIO, "B-PER I-PER O")
    assert feed(SpanF1(BIO), np.eye(5)[true], true).compute()[""] == 1.0


def test_ignored_positions_within_a_sequence_are_left_out_of_both(feed):
    true = np.array([[1, -100, 2, 0, -100]])
    guess = np.array([[1, 4, 2, 0, 3]])
    metric = feed(SpanF1(BIO, ignore_index=-100), guess, true)
    assert metric.state["counts"].tolist() == [[1, 0], [1, 0], [1, 0]]


def test_sequences_of_weight_0_do_not_count_whatever_they_hold(feed):
    true, guess = np.array([[1, 2], [7, 7]]), np.array([[1, 2], [-5, 9]])
    metric = feed(SpanF1(BIO), guess, true, np.array([1, 0], np.float32))
    assert metric.compute() == {"": 1.0, "precision": 1.0, "recall": 1.0}
    weighted = feed(SpanF1(BIO), guess[:1], true[:1], np.array([2], np.float32))
    assert weighted.state["counts"].tolist() == [[2, 0], [2, 0], [2, 0]]


def test_counts_are_exact_beyond_the_integers_of_float32(feed):
    metric = SpanF1(["B", "I"])
    metric.state["counts"] += 2.0**24
    assert (
        feed(metric, np.zeros((1, 1), int), np.zeros((1, 1), int)).state["counts"].tolist()
        == [[2**24 + 1]] * 3
    )


def test_without_a_span_the_value_is_nan_and_without_a_true_one_0(feed):
    outside, span = np.zeros((1, 2), int), np.array([[1, 2]])
    assert np.isnan(list(SpanF1(BIO).compute().values())).all()
    assert np.isnan(list(feed(SpanF1(BIO), outside, outside).compute().values())).all()
    assert set(feed(SpanF1(BIO), span, outside).compute().values()) == {0.0}


def test_without_tags_nothing_is_reported(feed):
    assert feed(SpanF1(), np.zeros((1, 2), int), np.array([[5, -1]])).compute() == {}


def test_one_unknown_tag_makes_all_numbers_nan_unless_it_does_not_count(feed):
    true = ids(BIO, "B-PER I-PER O", "B-PER O O")
    scores = np.eye(5)[true]
    scores[0, 1, 3] = np.nan
    got = feed(SpanF1(BIO, per_type=True), scores, true, cuts=[1]).compute()
    assert np.isnan(list(got.values())).all()
    tagged = np.where(np.isnan(scores).any(2), -1, true)
    assert np.isnan(feed(SpanF1(BIO), tagged, true).compute()[""])
    true[0, 1] = -1
    assert feed(SpanF1(BIO, ignore_index=-1), scores, true).compute()[""] == 1.0
    weights = np.array([0, 1], np.float32)
    assert feed(SpanF1(BIO), scores, true, weights).compute()[""] == 1.0


def test_a_tag_beyond_the_names_is_refused(feed):
    with pytest.raises(DataError, match=r"tag id 5 in field 'y'; allowed by its 5 tags: 0 to 4"):
        feed(SpanF1(BIO), np.array([[0]]), np.array([[5]]))
    with pytest.raises(DataError, match=r"tag id -1 in field 'y'.*ignore_index=-1"):
        feed(SpanF1(BIO), np.array([[0]]), np.array([[-1]]))
    with pytest.raises(DataError, match=r"tag id 9 in output 'output'"):
        feed(SpanF1(BIO), np.array([[9]]), np.array([[0]]))


def test_labels_without_a_sequence_are_refused(feed):
    with pytest.raises(DataError, match=r"shape \(3,\); allowed: tag ids \(N, T\)"):
        feed(SpanF1(BIO), np.zeros(3, int), np.zeros(3, int))


@pytest.mark.parametrize(
    "tags",
    [
        "BIO",
        [],
        ["O"],
        3,
        ["O", "B", "B"],
        ["O", "B-"],
        ["O", "X-PER"],
        ["O", "PER"],
        ["b"],
        [0, 1],
    ],
)
def test_what_is_no_list_of_tags_is_refused(tags):
    with pytest.raises(ConfigError, match="allowed: a list of different names") as error:
        SpanF1(tags)
    assert repr(tags) in str(error.value)


def test_a_type_that_bears_the_name_of_a_number_is_not_reported_in_its_place():
    assert set(SpanF1(["O", "B-recall"]).compute()) == {"", "precision", "recall"}
    with pytest.raises(ConfigError, match="type 'recall' under a taken name"):
        SpanF1(["O", "B-recall"], per_type=True)
