from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expkit.core.errors import ConfigError
from expkit.core.monitor import Monitor


def test_plain_name_means_larger_is_better():
    assert Monitor.parse("dev/accuracy") == Monitor("dev/accuracy", larger_is_better=True)


def test_leading_minus_means_smaller_is_better():
    assert Monitor.parse("-loss") == Monitor("loss", larger_is_better=False)


@pytest.mark.parametrize("text", ["accuracy", "-loss", "top-1"])
def test_text_and_monitor_are_the_same(text):
    assert str(Monitor.parse(text)) == text


@pytest.mark.parametrize("text", ["", "-", "--loss", " ", None, 3])
def test_text_that_names_no_metric_is_refused(text):
    with pytest.raises(ConfigError, match=r"^monitor: .*\(try: monitor=-loss\)$"):
        Monitor.parse(text)


def test_error_names_the_key_that_was_given():
    with pytest.raises(
        ConfigError, match=r"^callbacks\.x\.monitor: .*try: callbacks\.x\.monitor=-loss"
    ):
        Monitor.parse("", "callbacks.x.monitor")


def test_score_is_turned_so_that_larger_is_better():
    metrics = {"loss": 0.25, "accuracy": np.float64(0.5)}
    assert Monitor.parse("accuracy").score(metrics) == 0.5
    assert Monitor.parse("-loss").score(metrics) == -0.25
    assert type(Monitor.parse("accuracy").score(metrics)) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["x", "-x"])
def test_value_that_is_not_finite_has_no_score(text, value):
    assert Monitor.parse(text).score({"x": value}) is None


def test_absent_value_has_no_score():
    assert Monitor.parse("x").score({"y": 1.0}) is None


def test_no_score_beats_nothing_and_is_beaten_by_any():
    monitor = Monitor("x")
    assert not monitor.better(None, None)
    assert not monitor.better(None, -1.0)
    assert monitor.better(-1.0, None)


def test_better_means_by_more_than_min_delta():
    monitor = Monitor("x")
    assert not monitor.better(0.5, 0.5)
    assert not monitor.better(0.75, 0.5, min_delta=0.25)
    assert monitor.better(0.76, 0.5, min_delta=0.25)


@given(st.lists(st.floats(), min_size=1), st.booleans())
def test_best_of_any_sequence_is_the_greatest_or_least_finite_value(values, larger):
    monitor = Monitor("x", larger)
    best = None
    for value in values:
        score = monitor.score({"x": value})
        if monitor.better(score, best):
            best = score
    finite = [value for value in values if math.isfinite(value)]
    expected = (max(finite) if larger else -min(finite)) if finite else None
    assert best == expected


def test_known_name_passes_the_check():
    Monitor.parse("-loss").check({"acc": 1.0, "loss": 0.5})


def test_unknown_name_is_refused_with_all_names_and_the_nearest():
    with pytest.raises(ConfigError) as caught:
        Monitor.parse("val_los").check(["loss", "acc"])
    assert str(caught.value) == (
        "monitor: 'val_los' is not a metric of the evaluation, which gives: acc, loss"
        "  (try: monitor=loss)"
    )


def test_nearest_name_keeps_the_sign():
    with pytest.raises(ConfigError, match=r"try: early\.monitor=-loss"):
        Monitor.parse("-los").check(["loss", "acc"], "early.monitor")


def test_nothing_near_gives_no_hint_and_no_metric_is_said():
    with pytest.raises(ConfigError, match=r"which gives: no metric at all$"):
        Monitor.parse("loss").check([])
