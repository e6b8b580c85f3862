from __future__ import annotations

import math

import pytest

from expkit.core.errors import ConfigError
from expkit.core.limits import Limits
from expkit.core.progress import Progress


@pytest.mark.parametrize(
    ("limits", "progress", "reached"),
    [
        ((2, None, None), Progress(epoch=1), False),
        ((2, None, None), Progress(epoch=2), True),
        ((None, 7, None), Progress(step=6), False),
        ((None, 7, None), Progress(step=7), True),
        ((2, 7, None), Progress(epoch=2, step=6), True),
        ((0, None, None), Progress(), True),
        ((None, None, 5.0), Progress(epoch=9, step=9), False),
    ],
)
def test_epochs_or_steps_are_done(limits, progress, reached):
    assert Limits(*limits).reached(progress) is reached


def test_time_is_up():
    assert Limits(None, None, 5.0).is_over_time(Progress(seconds_before=5.0))
    assert not Limits(None, None, 5.0).is_over_time(Progress(seconds_before=4.0))
    assert not Limits(1, None, None).is_over_time(Progress(seconds_before=1e9))


@pytest.mark.parametrize(
    ("limits", "steps_per_epoch", "total"),
    [
        ((3, None, None), 5, 15),
        ((3, 7, None), 5, 7),
        ((3, 70, None), 5, 15),
        ((3, None, None), None, None),
        ((3, 7, None), None, 7),
        ((None, None, 1.0), 5, None),
        ((0, None, None), 5, 0),
    ],
)
def test_the_length_in_steps_as_far_as_it_is_known(limits, steps_per_epoch, total):
    assert Limits(*limits).total_steps(Progress(steps_per_epoch=steps_per_epoch)) == total


def test_epochs_that_are_over_count_with_the_steps_that_they_had():
    progress = Progress(epoch=2, step=23, epoch_step=3, steps_per_epoch=5)
    assert Limits(4, None, None).total_steps(progress) == 30


@pytest.mark.parametrize("value", [-1, 2.5, "5", True, math.inf])
def test_counts_are_whole_numbers(value):
    with pytest.raises(ConfigError, match=r"trainer\.n_epochs: is .*a whole number, 0 or more"):
        Limits(value, None, None)
    with pytest.raises(ConfigError, match=r"trainer\.max_steps: is "):
        Limits(None, value, None)


@pytest.mark.parametrize("value", [-0.5, math.nan, "5", True])
def test_a_time_is_seconds(value):
    with pytest.raises(ConfigError, match=r"trainer\.max_time: is .*seconds, 0 or more"):
        Limits(None, None, value)


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as error:
        Limits(-1, -1, -1)
    assert len(error.value.problems) == 3


def test_no_limit_is_refused():
    with pytest.raises(ConfigError, match="never end"):
        Limits(None, None, None)


def test_limits_are_told_as_they_are_written():
    assert str(Limits(3, None, 1.5)) == "n_epochs=3, max_time=1.5"


def test_auto_is_twenty_epochs_where_there_is_no_other_limit():
    assert Limits("auto", None, None).n_epochs == 20
    assert Limits("auto", 50, None).n_epochs is None
    assert Limits("auto", None, 5.0).n_epochs is None
    assert Limits(3, 50, None).n_epochs == 3


def test_data_without_a_length_needs_a_limit_of_somebody_s_own():
    with pytest.raises(ConfigError, match="auto, which sets no end to data without a length"):
        Limits("auto", None, None).check_length(None)
    for limits in (Limits("auto", 5, None), Limits(2, None, None), Limits("auto", None, 5.0)):
        limits.check_length(None)
    Limits("auto", None, None).check_length(45)
