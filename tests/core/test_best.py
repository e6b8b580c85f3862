from __future__ import annotations

import math

import pytest

from expkit.core.best import Best
from expkit.core.errors import ConfigError
from expkit.core.monitor import Monitor


def seen(monitor, *values):
    best = Best(Monitor.parse(monitor))
    return best, [best.see({"m": value}, step, step) for step, value in enumerate(values)]


@pytest.mark.parametrize(
    ("monitor", "answers", "step"),
    [("m", [True, False, True, False], 2), ("-m", [True, True, False, False], 1)],
)
def test_the_greatest_or_the_least_is_best(monitor, answers, step):
    best, got = seen(monitor, 0.5, 0.3, 0.9, 0.9)
    assert got == answers
    assert best.step == step


def test_nan_and_infinity_are_never_best():
    best, answers = seen("m", math.nan, math.inf, 0.1, math.nan)
    assert answers == [False, False, True, False]
    assert best.latest is None
    assert best.score == 0.1


def test_without_a_monitor_nothing_is_best():
    best = Best(None)
    best.check(["anything"])
    assert best.see({"m": 1.0}, 0, 1) is False
    assert best.score is None


def test_the_first_evaluation_must_have_the_metric_and_later_ones_may_lack_it():
    with pytest.raises(ConfigError, match="'m' is not a metric"):
        Best(Monitor.parse("m")).see({"loss": 1.0}, 0, 1)
    best, _ = seen("m", 0.5)
    assert best.see({"loss": 1.0}, 1, 2) is False


def test_a_state_comes_back():
    best, _ = seen("-m", 0.5, 0.4)
    other = Best(Monitor.parse("-m"))
    other.load_state(best.state())
    assert (other.score, other.metrics, other.epoch, other.step) == (-0.4, {"m": 0.4}, 1, 1)
    assert other.see({}, 2, 2) is False


def test_a_best_of_another_monitor_does_not_count():
    best, _ = seen("m", 0.5)
    for own in (Monitor.parse("-m"), None):
        with pytest.raises(ConfigError, match=r"monitor=m"):
            Best(own).load_state(best.state())


def test_before_the_first_best_the_monitor_may_change():
    other = Best(Monitor.parse("-m"))
    other.load_state(Best(Monitor.parse("m")).state())
    assert other.score is None
