from __future__ import annotations

import numpy as np
import pytest

from expkit.callbacks import ExponentialMovingAverage
from expkit.core.errors import ConfigError
from expkit.core.events import Context
from expkit.core.progress import Progress
from tests.callbacks.stub_run import StubDriver, evaluate, step


def weight(context) -> float:
    return float(context.driver.parameters["layer.weight"][0])


def train_to(context, callback, value: float, **kwargs) -> None:
    """One step whose update sets every parameter to ``value``."""
    for array in context.driver.parameters.values():
        array[...] = value
    step(context, callback, **kwargs)


def started(context, **arguments) -> ExponentialMovingAverage:
    callback = ExponentialMovingAverage(**arguments)
    callback.fit_start(context)
    return callback


def evaluated_weight(context, callback) -> float:
    callback.eval_start(context)
    seen = weight(context)
    callback.eval_end(context, {})
    return seen


def test_average_follows_the_formula(context):
    callback = started(context, decay=0.75, warmup=False)
    train_to(context, callback, 1.0)
    train_to(context, callback, 2.0)
    assert evaluated_weight(context, callback) == 0.75 * 0.25 + 0.25 * 2.0


def test_warmup_follows_faster_in_the_beginning(context):
    callback = started(context, decay=0.999)
    train_to(context, callback, 1.0)
    assert evaluated_weight(context, callback) == pytest.approx(1 - 2 / 11, rel=1e-15)
    train_to(context, callback, 1.0)
    assert evaluated_weight(context, callback) == pytest.approx(1 - 2 / 11 * 3 / 12, rel=1e-15)


def test_training_goes_on_with_the_raw_parameters(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0)
    assert evaluated_weight(context, callback) == 0.5
    assert weight(context) == 1.0


def test_step_without_update_leaves_the_average_alone(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0, skipped=True)
    assert evaluated_weight(context, callback) == 0.0


def test_checkpoint_holds_the_average_as_the_model_and_keeps_buffers(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0)
    state = {"model": context.driver.model_state(), "callbacks": {"ema": callback.state()}}
    callback.save(context, state)
    assert state["model"]["layer.weight"].tolist() == [0.5, 0.5]
    assert state["model"]["norm.mean"].tolist() == [0.0, 0.0, 0.0]
    assert state["callbacks"]["ema"]["parameters"]["layer.weight"].tolist() == [1.0, 1.0]
    assert weight(context) == 1.0


def test_resume_is_exact(context):
    straight = started(context, decay=0.9)
    for value in (1.0, 2.0, 3.0):
        train_to(context, straight, value)
    state = {"model": context.driver.model_state(), "callback": straight.state()}
    straight.save(context, state)

    driver = StubDriver()
    for path, array in driver.parameters.items():
        array[...] = state["model"][path]
    resumed_context = Context(Progress(step=3), driver)
    resumed = ExponentialMovingAverage(decay=0.9)
    resumed.load_state(state["callback"])
    resumed.load(resumed_context, state)
    resumed.fit_start(resumed_context)

    assert weight(resumed_context) == 3.0
    for value in (4.0, 5.0):
        train_to(context, straight, value)
        train_to(resumed_context, resumed, value)
    assert evaluated_weight(resumed_context, resumed) == evaluated_weight(context, straight)
    np.testing.assert_equal(resumed.state(), straight.state())


def test_average_is_left_after_training(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0)
    callback.fit_end(context)
    assert weight(context) == 0.5


def test_best_checkpoint_taken_at_the_end_is_left_as_it_is(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0)
    for array in context.driver.parameters.values():
        array[...] = 7.0
    callback.load(context, {})
    callback.fit_end(context)
    assert weight(context) == 7.0


def test_failed_evaluation_leaves_the_raw_parameters(context):
    callback = started(context, decay=0.5, warmup=False)
    train_to(context, callback, 1.0)
    callback.eval_start(context)
    callback.exception(context, ValueError())
    assert weight(context) == 1.0
    callback.exception(context, ValueError())
    assert weight(context) == 1.0


def test_restored_state_is_kept_when_saved_before_training():
    callback = ExponentialMovingAverage()
    assert callback.state() == {}
    callback.load_state({"parameters": {"w": np.ones(1)}})
    assert callback.state()["parameters"]["w"].tolist() == [1.0]


def test_evaluation_before_training_sees_the_first_weights(context):
    callback = started(context)
    evaluate(context, callback, accuracy=0.1)
    assert weight(context) == 0.0


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_decay_outside_its_range_is_refused(decay):
    with pytest.raises(ConfigError, match=r"callbacks\.ema\.decay=0\.999"):
        ExponentialMovingAverage(decay)
