from __future__ import annotations

import math

import pytest

from expkit.callbacks import RunOnBest
from expkit.core.errors import ConfigError
from expkit.core.events import EventBus
from tests.callbacks.stub_run import evaluate


def run(context, values, callback=None):
    called = []
    callback = callback or RunOnBest(lambda context, metrics: called.append(metrics["accuracy"]))
    callback.fit_start(context)
    for value in values:
        context.progress.step += 1
        evaluate(context, callback, accuracy=value)
    return called, callback


def test_function_is_called_at_each_new_best_only(context):
    called, _ = run(context, [0.1, 0.5, 0.4, math.nan, 0.5, 0.6])
    assert called == [0.1, 0.5, 0.6]


def test_function_gets_the_context(context):
    seen = []
    run(context, [0.1], RunOnBest(lambda context, metrics: seen.append(context)))
    assert seen == [context]


def test_best_survives_a_restart(context):
    _, first = run(context, [0.5])
    called = []
    second = RunOnBest(lambda context, metrics: called.append(metrics["accuracy"]))
    second.load_state(first.state())
    run(context, [0.4, 0.6], second)
    assert called == [0.6]


def test_evaluation_before_training_is_no_best(context):
    called = []
    callback = RunOnBest(lambda context, metrics: called.append(metrics))
    callback.fit_start(context)
    evaluate(context, callback, accuracy=0.9)
    assert called == []


@pytest.mark.parametrize(("run_on", "handlers"), [("main", 0), ("all", 1)])
def test_run_on_decides_about_other_ranks(run_on, handlers):
    bus = EventBus({"on_best": RunOnBest(print, run_on=run_on)}, is_main=False)
    assert len(bus.eval_end) == handlers


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ConfigError, match=r"callbacks\.on_best\.function: is 'my_module\.f'"):
        RunOnBest("my_module.f")


def test_unknown_run_on_is_refused():
    with pytest.raises(ConfigError, match="allowed: all, main"):
        RunOnBest(print, run_on="rank1")
