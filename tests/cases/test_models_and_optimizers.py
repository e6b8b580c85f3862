"""Theme 18: frozen parameters, several optimizers, and callbacks alike on every driver."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError
from expkit.core.events import EVENTS
from expkit.optimizers import SGD, Adam
from expkit.schedules import Linear
from tests.cases.parts import Events, Probe, make_mlp, make_trainer

FROZEN, TRAINED = "layers.linear_0.weight", "layers.output.weight"


def freeze(framework, model, path):
    if framework == "numpy":
        model.named_parameters()[path].trainable = False
    elif framework == "torch":
        dict(model.named_parameters())[path].requires_grad = False
    else:
        dict(model.named_parameters())[path].stop_gradient = True


@pytest.mark.parametrize("optimizer", [SGD(weight_decay=0.1), Adam(weight_decay=0.1)], ids=str)
def test_what_is_frozen_before_the_run_stays_to_the_last_bit(framework, optimizer):
    """Case 133 b."""
    model = make_mlp(framework)
    freeze(framework, model, FROZEN)
    trainer = make_trainer(framework, model=model, optimizer=optimizer)
    before = trainer.driver.model_state()
    trainer.fit()
    after = trainer.driver.model_state()
    np.testing.assert_array_equal(before[FROZEN], after[FROZEN])
    assert not np.array_equal(before[TRAINED], after[TRAINED])


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam(weight_decay=0.1)], ids=str)
def test_what_a_callback_freezes_stays_from_then_on(framework, optimizer):
    """Case 133 c."""
    seen = {}

    def at_5(context):
        freeze(framework, context.driver.unwrap(), FROZEN)
        seen[5] = context.driver.model_state()

    trainer = make_trainer(framework, optimizer=optimizer, callbacks=[Probe({5: at_5})])
    before = trainer.driver.model_state()
    trainer.fit()
    after = trainer.driver.model_state()
    assert not np.array_equal(before[FROZEN], seen[5][FROZEN])
    np.testing.assert_array_equal(seen[5][FROZEN], after[FROZEN])
    assert not np.array_equal(seen[5][TRAINED], after[TRAINED])


def test_two_optimizers_are_each_stepped_once_per_update(framework):
    rates = []
    probe = Probe({s: lambda c: rates.append(c.driver.learning_rates()) for s in range(1, 6)})
    optimizer = {
        "body": SGD(lr=1e-3, params="*.linear_0.*"),
        "head": Adam(lr=1e-2, params="*output*"),
    }
    trainer = make_trainer(
        framework,
        optimizer=optimizer,
        schedule={"body": Linear(), "head": Linear(warmup=5)},
        n_epochs=1,
        callbacks=[probe],
    )
    before = trainer.driver.model_state()
    trainer.fit()
    after = trainer.driver.model_state()
    assert all(not np.array_equal(before[path], after[path]) for path in before)
    assert [each["lr/body"] for each in rates] == pytest.approx([8e-4, 6e-4, 4e-4, 2e-4, 0])
    assert [each["lr/head"] for each in rates] == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3, 1e-2])
    steps = [
        v for k, v in trainer.driver.state()["optimizer"]["head"].items() if k.endswith("/step")
    ]
    assert [int(step) for step in steps] in ([5, 5], [])  # Paddle counts in powers of the betas


def test_groups_keep_their_own_base_rate_under_a_schedule(framework):
    """Warm-up of 2 of 10 steps to .1, and half of it for the biases."""
    rates = []
    probe = Probe({s: lambda c: rates.append(c.driver.learning_rates()) for s in range(1, 11)})
    trainer = make_trainer(
        framework,
        optimizer=SGD(lr=0.1, groups=[{"params": "*.bias", "lr": 0.05}]),
        schedule=Linear(warmup=2),
        n_epochs=2,
        callbacks=[probe],
    )
    trainer.fit()
    table = [0.05, 0.1, 0.0875, 0.075, 0.0625, 0.05, 0.0375, 0.025, 0.0125, 0]
    assert [each["lr/default/0"] for each in rates] == pytest.approx(table)
    assert [each["lr/default/1"] for each in rates] == pytest.approx([rate / 2 for rate in table])


def test_schedules_of_other_names_than_the_optimizers_are_refused():
    with pytest.raises(ConfigError, match=r"schedule: has \['body'\].*\['default'\]"):
        make_trainer(schedule={"body": Linear()})


def test_nothing_to_train_with_is_refused(framework):
    with pytest.raises(ConfigError, match=r"optimizer: is null.*optimizer=adam"):
        make_trainer(framework, optimizer=None)


MICRO_BATCH = ["batch_start", "loss_start", "backward_start", "backward_end"]
STEP = [*MICRO_BATCH, "batch_end", *MICRO_BATCH, "step_start", "step_end", "batch_end"]
EVALUATION = ["eval_start", "eval_end"]


def test_the_events_of_a_run_are_the_same_list_on_every_driver(framework):
    """Case 135: two epochs of two steps of two micro-batches, evaluated and saved at each end."""
    events = Events()
    make_trainer(
        framework,
        n=8,
        batch_size=2,
        accumulate=2,
        n_epochs=2,
        eval_on=2,
        eval_at_start=True,
        callbacks=[events],
    ).fit()
    epoch = ["epoch_start", *STEP, *STEP, *EVALUATION, "save", "epoch_end"]
    assert events.calls == ["fit_start", *EVALUATION, *epoch, *epoch, "fit_end"]


def test_the_events_of_a_failure_end_with_the_exception(framework):
    events = Events()

    def fail(context):
        raise ValueError("no")

    trainer = make_trainer(framework, callbacks=[events, Probe({1: fail})])
    with pytest.raises(Exception, match="no"):
        trainer.fit()
    assert events.calls == [
        "fit_start",
        "epoch_start",
        *MICRO_BATCH,
        "step_start",
        "step_end",
        "exception",
    ]
    assert set(events.calls) < set(EVENTS)
