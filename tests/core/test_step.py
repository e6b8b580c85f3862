from __future__ import annotations

import numpy as np
import pytest

from expkit.core.batch import Batch, Window
from expkit.core.errors import ConfigError, DataError, StepError
from expkit.core.events import Context, EventBus, on
from expkit.core.period import Period
from expkit.core.progress import Progress
from expkit.core.schedule import ScheduleSet
from expkit.core.step import Step
from expkit.schedules import Linear


class Driver:
    """Writes down what it is asked for."""

    rank = 0

    def __init__(self, applied=True, broken=None):
        self.calls, self.applied, self.broken = [], applied, broken

    def forward(self, batch, sync):
        self.calls.append(("forward", sync))
        if self.broken:
            raise self.broken
        return {}

    def loss(self, outputs, batch):
        return "loss"

    def backward(self, loss, scale):
        self.calls.append(("backward", scale))

    def clip_gradients(self, max_norm):
        self.calls.append(("clip", max_norm))

    def optimizer_step(self, factors):
        self.calls.append(("step", factors))
        return self.applied

    def discard_gradients(self):
        self.calls.append(("discard",))


class Losses:
    def __init__(self):
        self.added = []

    def add(self, terms, step):
        self.added.append((step, len(terms)))


def window(*sizes):
    batches = [Batch({}, np.arange(size)) for size in sizes]
    return Window(batches, float(sum(sizes)))


def make(driver, callbacks=(), clip_norm=None, log_every=2):
    schedules = ScheduleSet(Linear(), {"default": 1.0})
    schedules.prepare(4, None)
    context = Context(Progress(), driver)
    losses = Losses()
    bus = EventBus(list(callbacks), is_main=True)
    step = Step(driver, bus, context, losses, schedules, clip_norm, Period(log_every))
    return step, context, losses


def test_a_window_is_one_update_divided_by_all_its_samples():
    driver = Driver()
    step, context, losses = make(driver, clip_norm=2.0)
    step(window(4, 4, 2))
    assert driver.calls == [
        ("forward", False),
        ("backward", 0.1),
        ("forward", False),
        ("backward", 0.1),
        ("forward", True),
        ("backward", 0.1),
        ("clip", 2.0),
        ("step", [0.75]),
    ]
    assert losses.added == [(1, 3)]
    progress = context.progress
    assert (progress.step, progress.epoch_step, progress.samples) == (1, 1, 10.0)


def test_a_record_is_due_at_its_steps():
    step, context, _ = make(Driver())
    due = []
    for _ in range(4):
        step(window(1))
        due.append(context.log_due)
    assert due == [False, True, False, True]


def test_an_overflow_is_counted_and_the_schedule_waits(caplog):
    driver = Driver(applied=False)
    step, context, _ = make(driver)
    step(window(1))
    driver.applied = True
    step(window(1))
    factors = [call[1] for call in driver.calls if call[0] == "step"]
    assert factors == [[0.75], [0.75]]
    assert (context.progress.step, context.progress.skipped_steps) == (2, 1)
    assert caplog.messages == ["step 1: the gradients overflowed, its update is left out"]


def test_a_skipped_step_is_counted_its_gradients_and_losses_thrown_away():
    driver = Driver()
    skip = on("step_start", once=1)(lambda context: context.skip_step())
    step, context, losses = make(driver, [skip], clip_norm=1.0)
    step(window(1))
    assert driver.calls[-1] == ("discard",)
    step(window(1))
    assert driver.calls[-1] == ("step", [0.75])
    assert losses.added == [(2, 1)]
    assert (context.progress.step, context.progress.skipped_steps) == (2, 1)


def test_an_error_names_step_and_samples_and_keeps_its_cause():
    step, context, _ = make(Driver(broken=ValueError("no")))
    with pytest.raises(
        StepError, match=r"step 1 on samples \[0, 1, 2\] failed: ValueError: no"
    ) as e:
        step(window(3, 2))
    assert isinstance(e.value.__cause__, ValueError)
    assert context.progress.step == 0


def test_an_error_of_our_own_passes_as_it_is():
    step, _, _ = make(Driver(broken=DataError("mine")))
    with pytest.raises(DataError, match=r"^mine$"):
        step(window(1))


def test_ctrl_c_passes_as_it_is():
    step, _, _ = make(Driver(broken=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        step(window(1))


def test_a_norm_of_0_is_refused():
    with pytest.raises(ConfigError, match=r"trainer\.clip_norm: is 0"):
        make(Driver(), clip_norm=0)
