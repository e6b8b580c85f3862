from __future__ import annotations

import math

import pytest

from expkit.callbacks import EarlyStop
from expkit.core.errors import ConfigError
from expkit.core.events import Context
from expkit.core.monitor import Monitor
from expkit.core.progress import Progress
from tests.callbacks.stub_run import StubDriver, evaluate


def stops_after(
    callback: EarlyStop, context: Context, values: list[float], name: str
) -> int | None:
    """Number of the evaluation after which the callback asks for the end."""
    for number, value in enumerate(values, start=1):
        context.progress.step += 5
        evaluate(context, callback, **{name: value})
        if context.stop_reason is not None:
            return number
    return None


def started(context: Context, **arguments) -> EarlyStop:
    callback = EarlyStop(**arguments)
    callback.fit_start(context)
    return callback


def test_stops_after_evaluation_4_of_the_known_sequence(context):
    callback = started(context, patience=2)
    assert stops_after(callback, context, [0.1, 0.5, 0.4, 0.3, 0.2], "accuracy") == 4
    assert "accuracy" in context.stop_reason


def test_smaller_is_better_with_a_leading_minus(context):
    callback = started(context, monitor="-loss", patience=2)
    assert stops_after(callback, context, [0.5, 0.4, 0.3, 0.35, 0.31, 0.1], "loss") == 5


def test_monitor_of_its_own_wins_over_the_runs(context):
    callback = started(context, monitor="-loss", patience=1)
    context.progress.step = 5
    evaluate(context, callback, loss=1.0, accuracy=0.1)
    evaluate(context, callback, loss=0.5, accuracy=0.0)
    assert context.stop_reason is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_never_better(context, bad):
    callback = started(context, patience=2)
    assert stops_after(callback, context, [bad, 0.3, bad, bad], "accuracy") == 4


def test_nan_first_is_not_kept_as_best(context):
    callback = started(context, patience=2)
    assert stops_after(callback, context, [math.nan, 0.1, 0.2, 0.3], "accuracy") is None


def test_gain_up_to_min_delta_does_not_count(context):
    callback = started(context, patience=2, min_delta=0.25)
    assert stops_after(callback, context, [0.0, 0.25, 0.25], "accuracy") == 3


def test_equal_is_no_improvement(context):
    callback = started(context, patience=1)
    assert stops_after(callback, context, [0.5, 0.5], "accuracy") == 2


def test_count_survives_a_restart(context):
    first = started(context, monitor="-loss", patience=3)
    assert stops_after(first, context, [0.5, 0.6, 0.7], "loss") is None
    second = EarlyStop(monitor="-loss", patience=3)
    second.load_state(first.state())
    second.fit_start(context)
    assert stops_after(second, context, [0.8, 0.9, 1.0], "loss") == 1


def test_stopped_run_stays_stopped_when_resumed_and_goes_on_with_more_patience(context, driver):
    first = started(context, patience=1)
    assert stops_after(first, context, [0.5, 0.4], "accuracy") == 2
    for patience, reason_expected in ((1, True), (2, False)):
        resumed = Context(Progress(step=10), driver, monitor=Monitor("accuracy"))
        second = EarlyStop(patience=patience)
        second.load_state(first.state())
        second.fit_start(resumed)
        assert (resumed.stop_reason is not None) is reason_expected


def test_best_of_another_metric_is_dropped_with_a_warning(context, caplog):
    first = started(context, patience=1)
    stops_after(first, context, [0.5], "accuracy")
    context.stop_reason = None
    second = EarlyStop(monitor="-loss", patience=1)
    second.load_state(first.state())
    second.fit_start(context)
    assert "callbacks.early_stop.monitor is now -loss" in caplog.text
    assert stops_after(second, context, [9.0, 8.0], "loss") is None


def test_evaluation_before_training_does_not_count(context):
    callback = started(context, patience=1)
    evaluate(context, callback, accuracy=0.9)
    assert stops_after(callback, context, [0.1, 0.2], "accuracy") is None


def test_unknown_metric_is_refused_at_the_first_evaluation(context):
    callback = started(context, monitor="-los")
    context.progress.step = 5
    with pytest.raises(ConfigError, match=r"early_stop\.monitor.*acc, loss.*monitor=-loss"):
        evaluate(context, callback, acc=0.1, loss=0.5)


def test_metric_that_is_absent_once_counts_as_no_improvement(context):
    callback = started(context, patience=2)
    stops_after(callback, context, [0.5], "accuracy")
    evaluate(context, callback, other=1.0)
    assert context.stop_reason is None
    evaluate(context, callback, other=1.0)
    assert context.stop_reason is not None


def test_run_without_any_monitor_is_refused():
    with pytest.raises(ConfigError, match=r"callbacks\.early_stop\.monitor=-loss"):
        EarlyStop().fit_start(Context(Progress(), StubDriver()))


@pytest.mark.parametrize("patience", [0, -1, 1.5, True])
def test_patience_below_1_or_not_whole_is_refused(patience):
    with pytest.raises(
        ConfigError, match=r"early_stop\.patience: is .*callbacks\.early_stop\.patience=3"
    ):
        EarlyStop(patience=patience)


@pytest.mark.parametrize("min_delta", [-0.1, math.nan, math.inf])
def test_min_delta_below_0_or_not_finite_is_refused(min_delta):
    with pytest.raises(ConfigError, match=r"early_stop\.min_delta"):
        EarlyStop(min_delta=min_delta)
