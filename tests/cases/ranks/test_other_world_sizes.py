"""Ranks of which some have nothing to do."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_three_ranks_count_each_sample_once(three):
    """Case 46."""
    for batch_size in (1, 3, 256):
        assert three.agree("evaluation.accuracy_and_count", batch_size=batch_size) == [0.7, 10]


def test_four_ranks_count_each_sample_once(four):
    """Case 46: padded to equal parts it would be 9 of 12."""
    for batch_size in (1, 3, 256):
        assert four.agree("evaluation.accuracy_and_count", batch_size=batch_size) == [0.7, 10]


def test_a_rank_without_a_sample_takes_part(four):
    """Case 38: three samples on four ranks, trained and evaluated."""
    seen, results = zip(*four.run("training.fewer_samples_than_ranks"), strict=True)
    assert list(seen) == [[0], [1], [2], []]
    assert all(result == results[0] for result in results)
    assert results[0]["steps"] == 1
    assert results[0]["metrics"]["loss"] > 0
    assert four.agree("evaluation.counts", sizes=[3, 1, 5]) == [[3, 3], [1, 1], [5, 5]]


def test_four_ranks_train_on_the_samples_of_one(four):
    """Ten samples in windows of eight: in the last one two ranks have nothing that counts."""
    steps, (w,) = four.agree("training.short_last_window", n=10, n_epochs=1)
    assert steps == 2
    assert w == pytest.approx(-0.2, abs=1e-6)
