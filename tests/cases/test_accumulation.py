"""Theme 3: accumulation, clipping and schedules in one process."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from expkit.core.errors import ConfigError
from expkit.core.events import Callback
from expkit.data import Data, Sequential
from expkit.optimizers import SGD
from expkit.schedules import Step
from tests.cases.parts import (
    Probe,
    gradients,
    make_mlp,
    make_trainer,
    samples,
    train_constant,
    weights,
)


def in_order(data, batch_size):
    return Data(data, batch_size=batch_size, sampler=Sequential())


@pytest.mark.parametrize(("n_epochs", "updates", "w"), [(1, 3, -0.3), (2, 6, -0.6)])
def test_the_short_last_window_is_divided_by_its_own_samples(framework, n_epochs, updates, w):
    """Case 23."""
    data = in_order(gradients(*[1.0] * 5), batch_size=1)
    trainer = train_constant(framework, data, accumulate=2, n_epochs=n_epochs)
    assert trainer.progress.step == updates
    assert weights(trainer) == pytest.approx([w], abs=1e-6)


def test_a_short_micro_batch_counts_with_its_samples(framework):
    """Case 27, on one rank: 3 samples with gradient 1 and 1 with 5 are 2, not 3."""
    data = in_order(gradients(1.0, 1.0, 1.0, 5.0), batch_size=3)
    trainer = train_constant(framework, data, accumulate=2, optimizer=SGD(lr=0.25), log_every=1)
    assert weights(trainer) == pytest.approx([-0.5], abs=1e-6)
    assert trainer._logger.of("train", "loss") == {1: 2.0}


def test_clipping_is_done_once_before_the_update(framework):
    """Case 29. The two micro-batches weigh the same, so each gradient is halved in the mean."""
    data = in_order(gradients([12.0, 0.0], [0.0, 1.6]), batch_size=1)
    trainer = train_constant(
        framework, data, width=2, accumulate=2, clip_norm=1.0, optimizer=SGD(lr=1.0)
    )
    assert -weights(trainer) == pytest.approx([0.99123, 0.13216], abs=1e-5)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_that_nothing_can_be_clipped_to_is_refused(clip_norm):
    with pytest.raises(ConfigError, match=r"trainer\.clip_norm: is .*clip_norm=1\.0"):
        make_trainer(clip_norm=clip_norm)


def test_the_schedule_advances_once_for_each_update(framework):
    """Case 31, on one rank."""
    rates = []
    probe = Probe({s: lambda c: rates.append(c.driver.learning_rates()["lr"]) for s in range(1, 9)})
    data = in_order(gradients(*[0.0] * 16), batch_size=1)
    train_constant(
        framework,
        data,
        accumulate=2,
        optimizer=SGD(lr=1.0),
        schedule=Step(every=1, gamma=0.5),
        callbacks=[probe],
    )
    assert rates[-1] == 0.00390625
    assert rates == [0.5**k for k in range(1, 9)]


def test_an_overflowed_step_is_left_out_and_said_and_the_schedule_waits(caplog):
    """Case 33."""
    torch = pytest.importorskip("torch")
    caplog.set_level(logging.WARNING, "expkit")
    rates = []

    class Overflow(Callback):
        def backward_end(self, context, loss):
            if context.progress.step == 1:
                next(iter(context.driver.unwrap().parameters())).grad[0] = torch.inf

        def step_end(self, context):
            rates.append(context.driver.learning_rates()["lr"])

    trainer = make_trainer(
        "torch",
        n=160,
        batch_size=40,
        n_epochs=1,
        driver_options={"precision": "fp16"},
        optimizer=SGD(lr=1.0),
        schedule=Step(every=1, gamma=0.5),
        callbacks=[Overflow()],
    )
    result = trainer.fit()
    assert (result.steps, result.skipped_steps) == (4, 1)
    assert rates == [0.5, 0.5, 0.25, 0.125]
    assert trainer.driver.state()["scaler"]["value"] == 32768.0
    assert [record.message for record in caplog.records] == [
        "step 2: the gradients overflowed, its update is left out"
    ]


def test_two_micro_batches_of_4_equal_one_of_8(framework):
    results = []
    for accumulate, batch_size in ((2, 4), (1, 8)):
        data = Data(samples(44), batch_size=batch_size)
        trainer = make_trainer(framework, data=data, accumulate=accumulate, log_every=1)
        trainer.fit()
        assert trainer.progress.step == 18
        results.append((weights(trainer), trainer._logger.of("train", "loss")))
    (left, left_losses), (right, right_losses) = results
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-6)
    assert left_losses == pytest.approx(right_losses, rel=1e-5)


def test_the_reported_loss_is_not_divided_by_the_window(framework):
    data = in_order(gradients(*[1.0] * 8), batch_size=2)
    trainer = train_constant(framework, data, accumulate=4, log_every=1, optimizer=SGD(lr=1e-9))
    assert trainer._logger.of("train", "loss") == {1: 1.0}


@pytest.mark.parametrize("accumulate", [0, -1, 1.5, True])
def test_windows_of_no_micro_batch_are_refused(accumulate):
    with pytest.raises(ConfigError, match=r"trainer\.accumulate: is "):
        make_trainer(accumulate=accumulate)


def test_clipping_comes_after_the_loss_scale_is_taken_out():
    pytest.importorskip("torch")
    results = []
    for precision in ("fp32", "fp16"):
        trainer = make_trainer(
            "torch",
            model=make_mlp("torch"),
            driver_options={
                "precision": precision,
                **({"loss_scale": 1024.0} if precision == "fp16" else {}),
            },
            optimizer=SGD(lr=0.5),
            clip_norm=0.1,
            n_epochs=1,
        )
        start = weights(trainer)
        assert trainer.fit().skipped_steps == 0
        results.append(weights(trainer) - start)
    assert 0 < np.linalg.norm(results[0]) <= 5 * 0.5 * 0.1
    np.testing.assert_allclose(*results, atol=2e-3)
