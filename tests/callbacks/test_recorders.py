"""Callbacks that add numbers to the training records."""

from __future__ import annotations

import logging

import pytest

from expkit.callbacks import DeviceMemory, LearningRateMonitor, StepTimer, Throughput
from expkit.core.events import EventBus
from expkit.core.loss_term import LossTerm
from tests.callbacks.stub_run import batch_of, evaluate, step

TERM = LossTerm(1.0, None, 1.0)


def test_learning_rates_are_told_only_where_a_record_is_due(context):
    callback = LearningRateMonitor()
    context.driver.rates = {"lr/a": 0.1, "lr/b": 0.2}
    step(context, callback)
    assert context.logged == {}
    context.log_due = True
    step(context, callback)
    assert context.logged == {"lr/a": 0.1, "lr/b": 0.2}


def test_device_memory_is_told_where_a_record_is_due(context):
    callback = DeviceMemory()
    context.driver.memory = 2**40
    callback.fit_start(context)
    step(context, callback)
    assert context.logged == {}
    context.log_due = True
    step(context, callback)
    assert context.logged == {"device_memory_bytes": 2**40}


def test_device_that_tells_nothing_is_said_once_and_not_recorded(context, caplog):
    callback = DeviceMemory()
    callback.fit_start(context)
    context.log_due = True
    step(context, callback)
    step(context, callback)
    assert context.logged == {}
    assert [record.getMessage() for record in caplog.records] == [
        "cpu does not tell its memory: none is recorded"
    ]


def test_throughput_counts_the_steps_since_the_record_before(context, clock, monkeypatch):
    monkeypatch.setattr("expkit.callbacks.throughput.perf_counter", clock)
    callback = Throughput()
    callback.fit_start(context)
    for seconds, due in ((1.0, False), (3.0, True), (0.5, True)):
        clock.now += seconds
        context.log_due = due
        step(context, callback)
        if due and seconds == 3.0:
            assert context.logged == {"samples_per_s": 1.0, "step_s": 2.0}
    assert context.logged == {"samples_per_s": 4.0, "step_s": 0.5}


def test_throughput_leaves_evaluations_out(context, clock, monkeypatch):
    monkeypatch.setattr("expkit.callbacks.throughput.perf_counter", clock)
    callback = Throughput()
    callback.fit_start(context)
    callback.eval_start(context)
    clock.now += 100.0
    callback.eval_end(context, {})
    clock.now += 2.0
    context.log_due = True
    step(context, callback)
    assert context.logged["step_s"] == 2.0


def test_throughput_tells_the_speed_of_each_epoch_without_its_evaluation(
    context, clock, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("expkit.callbacks.throughput.perf_counter", clock)
    callback = Throughput()
    callback.fit_start(context)
    for seconds in (0.5, 0.25):
        clock.now += 100.0
        callback.epoch_start(context)
        for due in (False, True, False, False):
            context.log_due = due
            clock.now += seconds / 1000
            step(context, callback)
        callback.eval_start(context)
        clock.now += 100.0
        callback.eval_end(context, {})
        context.progress.epoch += 1
        callback.epoch_end(context)
    assert [record.getMessage() for record in caplog.records] == [
        "epoch 1: 4,000 samples/s, 0.5 ms per step",
        "epoch 2: 8,000 samples/s, 0.25 ms per step",
    ]


@pytest.mark.parametrize("callback", [Throughput(), StepTimer()])
def test_an_epoch_that_had_ended_before_a_restart_is_not_told(context, callback, caplog):
    caplog.set_level(logging.INFO)
    callback.fit_start(context)
    callback.epoch_end(context)
    assert not caplog.records


def test_throughput_says_nothing_when_the_clock_stood_still(context, clock, monkeypatch):
    monkeypatch.setattr("expkit.callbacks.throughput.perf_counter", clock)
    callback = Throughput()
    callback.fit_start(context)
    context.log_due = True
    step(context, callback)
    assert context.logged == {}


def timed_step(context, callback, clock, data=4.0, forward=3.0, backward=2.0, update=1.0) -> None:
    batch = batch_of(0)
    clock.now += data
    callback.batch_start(context, batch, batch.indices)
    clock.now += forward
    callback.backward_start(context, TERM)
    clock.now += backward
    callback.backward_end(context, TERM)
    clock.now += update
    callback.step_end(context)


@pytest.fixture
def timer(context, clock, monkeypatch):
    monkeypatch.setattr("expkit.callbacks.timer.perf_counter", clock)
    callback = StepTimer()
    callback.epoch_start(context)
    return callback


def test_timer_tells_the_shares_of_the_four_parts(context, clock, timer):
    timed_step(context, timer, clock)
    assert context.logged == {}
    context.log_due = True
    timed_step(context, timer, clock)
    assert context.logged == {
        "time/data": 0.4,
        "time/forward": 0.3,
        "time/backward": 0.2,
        "time/step": 0.1,
    }


def test_timer_tells_the_shares_of_each_epoch(context, clock, timer, caplog):
    caplog.set_level(logging.INFO)
    context.log_due = True
    timed_step(context, timer, clock)
    timed_step(context, timer, clock, data=0.0, forward=5.0, backward=4.0, update=1.0)
    context.progress.epoch = 1
    timer.epoch_end(context)
    timer.epoch_start(context)
    timed_step(context, timer, clock)
    context.progress.epoch = 2
    timer.epoch_end(context)
    assert [record.getMessage() for record in caplog.records] == [
        "epoch 1: time of a step: data 20%, forward 40%, backward 30%, step 10%",
        "epoch 2: time of a step: data 40%, forward 30%, backward 20%, step 10%",
    ]


def test_timer_starts_anew_after_each_record(context, clock, timer):
    context.log_due = True
    timed_step(context, timer, clock)
    timed_step(context, timer, clock, data=0.0, forward=1.0, backward=1.0, update=0.0)
    assert context.logged["time/forward"] == 0.5


def test_timer_leaves_evaluation_and_saving_out(context, clock, timer):
    timed_step(context, timer, clock)
    clock.now += 100.0
    evaluate(context, timer, accuracy=0.5)
    timer.save(context, {})
    clock.now += 100.0
    context.log_due = True
    timed_step(context, timer, clock, data=0.0)
    assert context.logged["time/data"] == pytest.approx(4.0 / 16.0, rel=1e-15)
    assert sum(context.logged.values()) == pytest.approx(1.0, rel=1e-15)


def test_timer_counts_the_first_batch_of_an_epoch_after_a_checkpoint(context, clock, timer):
    timer.save(context, {})
    clock.now += 100.0
    timer.epoch_start(context)
    context.log_due = True
    timed_step(context, timer, clock)
    assert context.logged["time/data"] == 0.4


def test_rank_0_alone_tells_rates_and_times():
    bus = EventBus([LearningRateMonitor(), Throughput(), StepTimer()], is_main=False)
    assert bus.step_end == ()
    assert bus.batch_start == ()
