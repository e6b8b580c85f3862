"""Theme 2: optimizer, schedule, loss scale, random state and callbacks of a resumed run."""

from __future__ import annotations

import logging
import math
import random

import numpy as np
import pytest

from expkit.callbacks.early_stop import EarlyStop
from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CheckpointError, ConfigError
from expkit.data import Data
from expkit.optimizers import SGD, Adam, AdamW
from expkit.schedules import Cosine, Linear, Plateau
from tests.cases.parts import (
    Probe,
    Scripted,
    assert_same,
    close_store,
    interrupted,
    make_trainer,
    resumed,
    samples,
    stop,
    weights,
)


class Noisy:
    """Adds noise of every generator that a data set may use."""

    def __init__(self, framework):
        self.rows = samples(20)
        self.framework = framework

    def __len__(self):
        return 20

    def __getitem__(self, index):
        row = {name: column[index] for name, column in self.rows.items()}
        noise = random.random() + np.random.rand()
        if self.framework == "torch":
            import torch

            noise += torch.rand(1).item()
        if self.framework == "paddle":
            import paddle

            noise += paddle.rand([1]).item()
        return row | {"x": row["x"] + np.float32(noise)}


def stopped_and_resumed(make, root, step):
    """A trainer that goes on from what another one left at ``step``; not yet run."""
    probe = Probe()
    first = make(checkpoint=CheckpointStore(root), callbacks=[probe])
    interrupted(first, probe, step)
    close_store(first)
    return resumed(make(checkpoint=CheckpointStore(root)), root)


@pytest.mark.parametrize("step", [7, 10])
def test_a_resumed_run_draws_what_the_straight_run_draws(framework, tmp_path, step):
    """Case 13."""

    def make(**options):
        data = Data(Noisy(framework), batch_size=4)
        return make_trainer(framework, data=data, mlp={"dropout": 0.5}, **options)

    straight = make()
    straight.fit()
    second = stopped_and_resumed(make, tmp_path, step)
    second.fit()
    np.testing.assert_array_equal(weights(second), weights(straight))


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(momentum=0.9),
        Adam(),
        AdamW(),
        {"a": SGD(params="*.linear_0.*"), "b": Adam(params="*output*")},
    ],
    ids=["sgd", "adam", "adamw", "two"],
)
def test_optimizers_go_on_exactly(framework, tmp_path, optimizer):
    def make(**options):
        return make_trainer(framework, optimizer=optimizer, schedule=Linear(), **options)

    straight = make()
    straight.fit()
    second = stopped_and_resumed(make, tmp_path, 7)
    second.fit()
    assert_same(straight.state(), second.state())


def test_the_loss_scale_goes_on_where_it_was(tmp_path):
    """Case 15."""
    pytest.importorskip("torch")

    def make(**options):
        driver = {"precision": "fp16", "loss_scale": 65536.0, "loss_scale_growth_every": 2}
        return make_trainer(
            "torch", n=200, batch_size=40, driver_options=driver, n_epochs=2, **options
        )

    second = stopped_and_resumed(make, tmp_path, 5)
    assert second.driver.state()["scaler"] == {"value": 262144.0, "good_steps": 1}
    second.fit()
    straight = make()
    straight.fit()
    assert_same(straight.state(), second.state())


def lr_after(trainer):
    return trainer.driver.learning_rates()["lr"]


def test_a_longer_run_stretches_its_schedule_and_says_so(tmp_path, caplog):
    """Case 17, the horizon: the schedule is a function of the present config."""
    caplog.set_level(logging.INFO, "expkit")

    def make(n_epochs, **options):
        return make_trainer(
            n=40, n_epochs=n_epochs, optimizer=SGD(lr=0.1), schedule=Cosine(), **options
        )

    probe = Probe({40: stop})
    make(5, checkpoint=CheckpointStore(tmp_path), callbacks=[probe]).fit()
    rates = {}
    probe = Probe(
        {
            step: lambda context: rates.update({context.progress.step: lr_after(context)})
            for step in (41, 100)
        }
    )
    second = resumed(make(10, checkpoint=CheckpointStore(tmp_path), callbacks=[probe]), tmp_path)
    assert second._schedules.factors(40)[0] * 0.1 == pytest.approx(0.0654508, abs=1e-7)
    assert second.fit().steps == 100
    assert rates[41] == pytest.approx(0.05 * (1 + math.cos(math.pi * 0.41)))
    assert rates[100] == pytest.approx(0.0, abs=1e-12)
    lines = [record.message for record in caplog.records if "config rules" in record.message]
    assert lines == ["the present config rules over the checkpoint: length in steps 100 (was 50)"]


def test_another_learning_rate_rules_from_the_first_resumed_step_and_says_so(
    framework, tmp_path, caplog
):
    """Case 17, the rate."""
    caplog.set_level(logging.INFO, "expkit")

    def make(lr, **options):
        return make_trainer(framework, optimizer=Adam(lr=lr), **options)

    make(0.1, checkpoint=CheckpointStore(tmp_path), max_steps=7).fit()
    second = resumed(make(0.01, checkpoint=CheckpointStore(tmp_path), max_steps=8), tmp_path)
    second.fit()
    assert lr_after(second) == 0.01
    assert "learning rates {'default': 0.01} (was {'default': 0.1})" in caplog.text


def test_a_plateau_remembers_its_reductions(framework, tmp_path):
    def make(*script, **options):
        return make_trainer(
            framework,
            optimizer=SGD(lr=0.1),
            schedule=Plateau(patience=1, gamma=0.5),
            metrics=Scripted(*script),
            monitor="accuracy",
            eval_on=4,
            **options,
        )

    make(0.5, 0.4, max_steps=10, checkpoint=CheckpointStore(tmp_path)).fit()
    second = resumed(make(0.3, checkpoint=CheckpointStore(tmp_path)), tmp_path)
    second.fit()
    assert lr_after(second) == pytest.approx(0.05)
    assert second._schedules.factors(16) == [0.25]


def test_another_kind_of_schedule_starts_afresh_and_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO, "expkit")
    options = {"monitor": "-loss", "eval_on": 4}
    make_trainer(checkpoint=CheckpointStore(tmp_path), max_steps=7, **options).fit()
    second = make_trainer(
        checkpoint=CheckpointStore(tmp_path), schedule=Plateau(), load_best=False, **options
    )
    assert resumed(second, tmp_path).fit().steps == 15
    assert "schedules {'default': 'Plateau'} (was {'default': 'ConstantRate'})" in caplog.text


def test_patience_goes_on_after_a_resume(tmp_path):
    """Case 19."""

    def make(*script, **options):
        return make_trainer(
            callbacks={"early_stop": EarlyStop(monitor="-accuracy", patience=3), **options},
            metrics=Scripted(*script),
            checkpoint=CheckpointStore(tmp_path),
            eval_on=4,
            eval_every=1,
            n_epochs=10,
        )

    first = make(0.5, 0.6, 0.7, probe=Probe({3: stop}))
    assert first.fit().steps == 3
    second = resumed(make(0.8, 0.9, 1.0), tmp_path)
    result = second.fit()
    assert (result.steps, result.status) == (4, "completed")
    assert "early stop" in result.reason


def test_scores_of_numpy_and_random_states_are_read_back_without_pickle(framework, tmp_path):
    """Case 21."""

    def make(**options):
        return make_trainer(
            framework,
            metrics=Scripted(*map(np.float64, (0.5, 0.25, 0.75))),
            monitor="accuracy",
            eval_on=4,
            **options,
        )

    first = make(checkpoint=CheckpointStore(tmp_path))
    first.fit()
    close_store(first)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".pkl", ".pdparams")]
    second = resumed(make(checkpoint=CheckpointStore(tmp_path)), tmp_path)
    assert second.fit().best_eval["accuracy"] == 0.75
    assert_same(first.state(), second.state())


# -- what cannot go on ---------------------------------------------------------------------------


def left_behind(tmp_path, **options):
    trainer = make_trainer(checkpoint=CheckpointStore(tmp_path), max_steps=5, **options)
    trainer.fit()
    close_store(trainer)


def test_a_checkpoint_of_another_model_is_refused_before_training(tmp_path):
    left_behind(tmp_path)
    other = make_trainer(mlp={"hidden": (9,)}, checkpoint=CheckpointStore(tmp_path))
    with pytest.raises(CheckpointError, match=r"another model.*linear_0"):
        resumed(other, tmp_path)


def test_another_number_of_optimizers_is_refused_before_training(tmp_path):
    left_behind(tmp_path)
    two = {"a": SGD(params="*.linear_0.*"), "b": SGD(params="*output*")}
    with pytest.raises(CheckpointError, match="other optimizers"):
        resumed(make_trainer(optimizer=two), tmp_path)


def test_another_monitor_is_refused_for_scores_do_not_compare(tmp_path):
    left_behind(tmp_path, monitor="-loss", eval_on=4)
    other = make_trainer(monitor="accuracy", eval_on=4)
    with pytest.raises(ConfigError, match=r"is accuracy.*judged by -loss.*monitor=-loss"):
        resumed(other, tmp_path)


def test_a_monitored_metric_may_be_absent_once_after_a_resume(tmp_path, caplog):
    def make(*script, **options):
        return make_trainer(
            metrics=Scripted(*script), monitor="accuracy", eval_on=4, load_best=False, **options
        )

    make(0.5, max_steps=5, checkpoint=CheckpointStore(tmp_path)).fit()
    second = resumed(make(None, 0.4), tmp_path)
    assert second.fit().best_step == 5
    assert "accuracy has no value at step 10" in caplog.text


def test_a_best_that_this_run_does_not_keep_is_said_and_the_last_weights_stay(tmp_path, caplog):
    def make(*script, **options):
        return make_trainer(metrics=Scripted(*script), monitor="accuracy", eval_on=4, **options)

    make(0.9, max_steps=5, checkpoint=CheckpointStore(tmp_path)).fit()
    second = resumed(make(0.5, 0.4), tmp_path)
    assert second.fit().best_step == 5
    assert "best evaluation (step 5)" in caplog.text
    plain = resumed(make(0.5, 0.4, load_best=False), tmp_path)
    plain.fit()
    np.testing.assert_array_equal(weights(second), weights(plain))


def test_a_finished_run_has_nothing_left_to_do(framework, tmp_path):
    """Case 109, the second part."""

    def make():
        return make_trainer(
            framework, checkpoint=CheckpointStore(tmp_path), eval_on=4, monitor="-loss"
        )

    first = make()
    before = first.fit()
    second = resumed(make(), tmp_path)
    after = second.fit()
    assert second._logger.rows == []
    assert (after.steps, after.metrics, after.best_eval) == (15, before.metrics, before.best_eval)
    np.testing.assert_array_equal(weights(first), weights(second))
