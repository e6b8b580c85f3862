"""Themes 5 and 12 on two ranks: each sample once, sums and never means of means."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("batch_size", [1, 3, 5, 256])
def test_each_sample_counts_once(two, batch_size):
    """Case 46."""
    assert two.agree("evaluation.accuracy_and_count", batch_size=batch_size) == [0.7, 10]
    alone = two.agree("evaluation.accuracy_and_count", batch_size=batch_size, alone=True)
    assert alone == [0.7, 10]


def test_counts_are_the_size_of_the_set(two):
    """Case 48."""
    sizes = [512, 97, 99, 33, 32, 1]
    assert two.agree("evaluation.counts", sizes=sizes) == [[n, n] for n in sizes]


def test_several_sets_have_their_names_in_the_metrics(two):
    found = two.agree("evaluation.several_sets", alone=False)
    alone = two.agree("evaluation.several_sets", alone=True)
    assert list(found) == list(alone)
    accuracies = {name: value for name, value in found.items() if name.endswith("accuracy")}
    assert accuracies == {"dev/accuracy": 0.7, "test/accuracy": 2 / 3, "one/accuracy": 1.0}
    assert found == pytest.approx(alone, rel=1e-6)


def test_losses_are_means_over_samples_and_not_over_batches_or_ranks(two):
    """Case 50."""
    assert two.agree("evaluation.losses") == pytest.approx([29 / 3] * 3, abs=1e-6)


def test_what_is_no_mean_is_made_of_the_counts_of_all_ranks(two):
    """Case 52: the mean of the ranks' precisions is 0.625, the sum of their largest 11."""
    assert two.agree("evaluation.not_a_mean") == [0.4, 9.0]


def test_a_metric_may_be_read_on_rank_0_alone(two):
    """Case 54."""
    (seen, result), (nothing, other) = two.run("evaluation.read_on_main")
    assert seen == [None, None, [0.7, 0.7], 0.7]
    assert nothing == []
    assert result == other
    assert result["metrics"]["accuracy"] == 0.7


def test_training_mode_comes_back_after_each_evaluation(two):
    """Case 56."""
    assert two.agree("evaluation.modes") == [[True] * 6, [True] * 6]


def test_padding_of_another_length_on_each_rank_counts_in_nothing(two):
    """Case 107: 6 of 7 and 3 of 5 tokens are right."""
    accuracy, loss = two.agree("evaluation.padding")
    assert accuracy == 0.75
    assert loss == pytest.approx(50 * 3 / 12)
