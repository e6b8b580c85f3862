from __future__ import annotations

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.core.errors import NonFiniteLossError
from expkit.core.loss_record import LossRecord
from expkit.core.loss_term import LossTerm, losses_by_sample, sum_losses


class Reader:
    """A driver that only reads losses, and counts how often."""

    def __init__(self):
        self.reads = 0

    def read_losses(self, terms):
        self.reads += 1
        values = np.concatenate([np.ravel(t.values) for t in terms]).astype(np.float64)
        weighted = [np.ravel(t.weights) for t in terms if t.weights is not None]
        return sum_losses(terms, values, np.concatenate(weighted) if weighted else np.empty(0))

    def all_reduce(self, array, op="sum"):
        return SingleProcess().all_reduce(array, op)


def term(*values):
    return LossTerm(np.array(values, np.float32), None, float(len(values)))


def test_nothing_is_read_in_a_step():
    record = LossRecord(Reader())
    for step in range(1, 11):
        record.add([term(1.0)], step)
    assert record._driver.reads == 0
    assert record.interval_mean() == 1.0
    assert record._driver.reads == 1


def test_means_weigh_each_sample_the_same():
    record = LossRecord(Reader())
    record.add([term(9, 11)], 1)
    record.add([term(9)], 2)
    assert record.interval_mean() == 29 / 3


def test_an_interval_starts_anew_and_an_epoch_goes_on():
    record = LossRecord(Reader())
    record.add([term(1.0)], 1)
    assert record.interval_mean() == 1.0
    record.add([term(3.0)], 2)
    assert record.interval_mean() == 3.0
    assert record.interval_mean() is None
    assert record.epoch_mean() == 2.0
    assert record.epoch_mean() is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_step_of_a_bad_loss_is_found_afterwards(value):
    record = LossRecord(Reader())
    for step in range(1, 8):
        record.add([term(1.0), term(value if step >= 5 else 1.0)], step)
    with pytest.raises(NonFiniteLossError, match=rf"became {value} at step 5; lower"):
        record.read()


def test_when_the_losses_were_read_does_not_show_in_the_last_bit():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000) * 10 ** rng.uniform(-8, 8, 1000)
    means = set()
    for every in (1, 7, 1000):
        record = LossRecord(Reader())
        for step, value in enumerate(values, 1):
            record.add([LossTerm(np.array([value]), None, 1.0)], step)
            if step % every == 0:
                record.read()
        means.add(record.epoch_mean())
    assert len(means) == 1


def test_a_state_comes_back():
    record = LossRecord(Reader())
    record.add([term(1.0, 2.0)], 1)
    record.interval_mean()
    record.add([term(6.0)], 2)
    other = LossRecord(Reader())
    other.load_state(record.state())
    assert other.interval_mean() == 6.0
    assert other.epoch_mean() == 3.0


def test_losses_that_nobody_reads_do_not_pile_up():
    record = LossRecord(Reader())
    for step in range(1, 2501):
        record.add([term(1.0)], step)
    assert len(record._terms) == 500
    assert record.epoch_mean() == 1.0


# -- what a term means ---------------------------------------------------------------------------


def test_sums_of_terms_of_all_kinds():
    terms = [
        LossTerm(np.array([1.0, 2.0]), None, 2.0),
        LossTerm(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [1.0, 2.0]]), None),
        LossTerm(np.array(5.0), None, 3.0),
    ]
    values = np.array([1, 2, 1, 2, 3, 4, 5], np.float64)
    weights = np.array([1, 0, 1, 2], np.float64)
    np.testing.assert_array_equal(sum_losses(terms, values, weights), [[3, 2], [12, 4], [15, 3]])


def test_losses_by_sample_of_all_kinds():
    scalar = losses_by_sample(np.array(2.0), None, 3)
    np.testing.assert_array_equal(scalar["loss"], [2, 2, 2])
    matrix = losses_by_sample(np.array([[1.0, 3.0], [5.0, 7.0]]), None, 2)
    np.testing.assert_array_equal(matrix["loss"], [2, 6])
    tokens = losses_by_sample(np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[1, 1], [1, 0]]), 2)
    np.testing.assert_array_equal(tokens["loss"], [4, 5])
    np.testing.assert_array_equal(tokens["loss_weight"], [2, 1])
