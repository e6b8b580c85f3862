from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expkit.core.errors import DataError
from expkit.data.splits import Splits, as_splits, split


@given(n=st.integers(1, 300), classes=st.integers(1, 6), seed=st.integers(0, 99))
def test_parts_are_disjoint_complete_and_stratified(n, classes, seed):
    labels = np.random.default_rng(seed).integers(0, classes, n)
    train, test = split(n, 0.2, seed, labels=labels)
    assert sorted([*train, *test]) == list(range(n))
    assert len(test) == -(-n // 5)
    for name in range(classes):
        share = (labels == name).sum() * len(test) / n
        assert abs((labels[test] == name).sum() - share) < 1


def test_split_is_a_function_of_the_seed():
    parts = [split(50, 0.2, seed)[1].tolist() for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


def test_split_of_seed_0_never_changes():
    assert split(20, 0.25, 0)[1].tolist() == [2, 5, 7, 9, 14]


X = {"x": np.arange(3)}


def test_samples_for_prediction_stand_beside_or_alone():
    assert as_splits({"predict": X}) == Splits(None, predict=X)
    assert as_splits({"train": X, "predict": {"a": X, "b": X}}).predict == {"a": X, "b": X}
    assert as_splits({"train": X, "eval": X}).predict is None
    assert as_splits((X, X)).predict is None


@pytest.mark.parametrize("source", [{}, {"train": X, "test": X}, X, (X, X, X)])
def test_a_source_that_gives_no_splits_is_refused_with_what_is_allowed(source):
    with pytest.raises(DataError, match="a dict with the keys train, eval and predict"):
        as_splits(source)
