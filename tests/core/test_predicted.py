from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from expkit.core.errors import PredictionError
from expkit.core.predicted import as_given, most_likely, without_last_axis, yes_or_no

scores = st.floats(-(2.0**100), 2.0**100, width=32)


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=4, max_side=5), elements=scores))
def test_the_label_is_the_first_of_the_greatest_scores_with_its_probability(output):
    found = most_likely(output)
    for place in np.ndindex(output.shape[:-1]):
        row = [float(score) for score in output[place]]
        label = row.index(max(row))
        assert found["label"][place] == label
        likely = 1 / math.fsum(math.exp(max(score - row[label], -1000.0)) for score in row)
        assert found["probability"][place] == pytest.approx(likely, abs=1e-6)


def test_a_probability_has_six_digits():
    found = most_likely(np.float32([[0, 1], [50, 0]]))
    assert found["probability"].tolist() == [0.731059, 1.0]
    assert yes_or_no(np.float32([1, -1, 0]))["probability"].tolist() == [0.731059, 0.268941, 0.5]


def test_integers_are_labels_already():
    labels = np.array([2, -1, 0])
    assert list(most_likely(labels)) == ["label"]
    assert most_likely(labels)["label"] is labels
    assert most_likely(labels[:, None])["label"].mask.tolist() == [[False], [True], [False]]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, bool])
def test_only_in_signed_integers_there_is_a_label_for_none(dtype):
    output = np.zeros((2, 3), dtype)
    assert as_given(output) is output


def test_scores_without_classes_are_refused():
    with pytest.raises(PredictionError, match=r"shape \(4,\); allowed: logits \(N, \.\.\., C\)"):
        most_likely(np.zeros(4))


@pytest.mark.parametrize(("bad", "label"), [(math.nan, None), (math.inf, 1)])
def test_of_scores_that_are_not_finite_the_probability_is_nan(bad, label):
    found = most_likely(np.float32([[0, bad, 1], [0, 0, 9]]))
    assert found["label"].tolist() == [label, 2]
    assert np.isnan(found["probability"]).tolist() == [True, False]


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_a_logit_above_0_means_1(shape):
    found = yes_or_no(np.float32([-1e4, -2, 0, 2, 1e4]).reshape(shape))
    assert found["label"].tolist() == [0, 0, 0, 1, 1]
    assert found["label"].dtype == np.int64
    assert found["probability"].tolist() == [0.0, 0.119203, 0.5, 0.880797, 1.0]


def test_of_a_logit_that_is_nan_there_is_no_label():
    found = yes_or_no(np.float32([math.nan, 2, math.inf]))
    assert found["label"].tolist() == [None, 1, 1]
    assert np.isnan(found["probability"]).tolist() == [True, False, False]


def test_each_of_several_logits_has_its_own_label():
    found = yes_or_no(np.float32([[1, -1], [-1, 1], [1, 1]]))
    assert found["label"].tolist() == [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("shape", "kept"), [((4,), (4,)), ((4, 1), (4,)), ((1,), (1,)), ((4, 2), (4, 2))]
)
def test_a_last_axis_of_length_1_is_dropped_but_never_that_of_the_samples(shape, kept):
    assert without_last_axis(np.zeros(shape)).shape == kept
