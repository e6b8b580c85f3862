from __future__ import annotations

import pytest

from expkit.core.progress import Progress


def test_a_position_comes_back_and_limits_stay_those_of_the_config():
    saved = Progress(epoch=1, step=7, epoch_step=2, samples=28.0, skipped_steps=1, n_epochs=3)
    other = Progress(n_epochs=9, total_steps=45, steps_per_epoch=5)
    other.load_state(saved.state())
    assert (other.epoch, other.step, other.epoch_step) == (1, 7, 2)
    assert (other.samples, other.skipped_steps) == (28.0, 1)
    assert (other.n_epochs, other.total_steps, other.steps_per_epoch) == (9, 45, 5)


def test_seconds_add_up_over_the_parts_of_a_run(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    first = Progress()
    first.start_clock()
    clock[0] += 5
    second = Progress()
    second.load_state(first.state())
    clock[0] += 2
    assert second.seconds == 7.0
    second.start_clock()
    assert second.seconds == 5.0


def test_an_epoch_ends_with_its_last_step():
    assert Progress(epoch_step=5, steps_per_epoch=5).epoch_ended
    assert not Progress(epoch_step=4, steps_per_epoch=5).epoch_ended
    assert not Progress(epoch_step=5, steps_per_epoch=None).epoch_ended


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(steps_per_epoch=5), "step 0, epoch 1 at 0 of 5 steps"),
        (Progress(0, 3, 3, steps_per_epoch=5), "step 3, epoch 1 at 3 of 5 steps"),
        (Progress(1, 7, 2, steps_per_epoch=5), "step 7, epoch 2 at 2 of 5 steps"),
        (Progress(1, 10, 5, steps_per_epoch=5), "step 10, epoch 2 done"),
        (Progress(2, 10, 0, steps_per_epoch=5), "step 10, epoch 2 done"),
        (Progress(0, 3, 3), "step 3, epoch 1 at 3 of unknown steps"),
    ],
)
def test_a_position_is_told_with_epochs_counted_from_1(progress, text):
    assert str(progress) == text


def test_between_two_epochs_the_last_step_was_in_the_one_that_is_over():
    assert Progress().latest_epoch == 0
    assert Progress(epoch=0, step=3, epoch_step=3).latest_epoch == 0
    assert Progress(epoch=1, step=5, epoch_step=0).latest_epoch == 0
    assert Progress(epoch=1, step=6, epoch_step=1).latest_epoch == 1
