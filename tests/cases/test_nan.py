"""Theme 14: a NaN never reaches a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.callbacks.nan_guard import NanGuard
from expkit.checkpoint import CheckpointStore
from expkit.core.errors import NonFiniteLossError
from expkit.core.events import Callback
from expkit.data import Data, Sequential
from tests.cases.parts import Probe, Scripted, close_store, interrupted, make_trainer, samples


def bad_step(framework, root, value=np.nan, save_every=5, background=True, **options):
    """40 steps of 2 samples, of which step 12 gives a loss that is not finite."""
    data = samples(80)
    data["x"][23] = value
    store = CheckpointStore(root, keep_last=3, background=background)
    return make_trainer(
        framework,
        data=Data(data, batch_size=2, sampler=Sequential()),
        checkpoint=store,
        n_epochs=1,
        save_every=save_every,
        **options,
    )


def kept_weights(root):
    store = CheckpointStore(root)
    for path in sorted(root.glob("step-*")):
        state, info = store.load(path)
        yield info.step, all(np.isfinite(array).all() for array in state["model"].values())


@pytest.mark.parametrize("log_every", [1, 10, None])
def test_a_bad_loss_ends_the_run_at_its_own_step_and_nothing_bad_is_kept(
    framework, tmp_path, log_every
):
    """Case 113, stop."""
    trainer = bad_step(framework, tmp_path, log_every=log_every)
    with pytest.raises(
        NonFiniteLossError,
        match=r"became nan at step 12; lower optimizer\.lr.*data holds NaN or inf",
    ):
        trainer.fit()
    assert trainer.result.status == "failed"
    assert list(kept_weights(tmp_path)) == [(5, True), (10, True)]
    assert CheckpointStore(tmp_path).last().step == 10


def test_the_guard_stops_before_the_update_and_names_the_samples(framework, tmp_path):
    trainer = bad_step(framework, tmp_path, callbacks=[NanGuard("stop")])
    with pytest.raises(NonFiniteLossError, match=r"step 12 .*lr=0\.01.*samples \[22, 23\]"):
        trainer.fit()
    assert trainer.progress.step == 11


def test_the_guard_leaves_the_step_out_and_goes_on(framework, tmp_path):
    """Case 113, skip."""
    trainer = bad_step(framework, tmp_path, callbacks=[NanGuard("skip")])
    result = trainer.fit()
    assert (result.status, result.steps, result.skipped_steps) == ("completed", 40, 1)
    assert list(kept_weights(tmp_path)) == [(30, True), (35, True), (40, True)]


def test_a_resumed_run_counts_its_skipped_steps_on(tmp_path):
    options = {"callbacks": [NanGuard("skip")]}
    probe = Probe()
    trainer = bad_step("numpy", tmp_path, callbacks=[NanGuard("skip"), probe])
    interrupted(trainer, probe, 14)
    close_store(trainer)
    second = bad_step("numpy", tmp_path, **options)
    second.load_state(CheckpointStore(tmp_path).load("last")[0])
    assert second.fit().skipped_steps == 1


def test_weights_that_a_gradient_spoilt_are_not_kept(framework, tmp_path):
    """A gradient can be NaN where the loss is not, as that of a square root at 0."""

    class Spoil(Callback):
        def step_end(self, context):
            if context.progress.step == 10:
                state = context.driver.model_state()
                state["layers.output.bias"][0] = np.nan
                context.driver.load_model_state(state)

    # A thread that writes may find it later than the loss of the next step does.
    options = {"background": False, "callbacks": [Spoil()]}
    trainer = bad_step(framework, tmp_path, value=0.0, **options)
    with pytest.raises(NonFiniteLossError, match=r"layers\.output\.bias holds NaN after step 10"):
        trainer.fit()
    assert list(kept_weights(tmp_path)) == [(5, True)]


def spoilt_gradient(step):
    """A callback that makes the gradient of a step NaN by clipping it to NaN."""

    class Spoil(Callback):
        def backward_end(self, context, loss):
            if context.progress.step + 1 == step:
                context.driver.clip_gradients(max_value=float("nan"))

    return Spoil()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_guard_leaves_out_a_nan_gradient_under_a_finite_loss(framework, tmp_path):
    trainer = bad_step(
        framework, tmp_path, value=0.0, callbacks=[spoilt_gradient(7), NanGuard("skip")]
    )
    result = trainer.fit()
    assert (result.status, result.steps, result.skipped_steps) == ("completed", 40, 1)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_model_full_of_nan_is_no_success_even_where_nothing_is_saved(framework, tmp_path):
    trainer = bad_step(
        framework, tmp_path, value=0.0, save_every=None, callbacks=[spoilt_gradient(40)]
    )
    with pytest.raises(NonFiniteLossError, match="holds NaN after step 40"):
        trainer.fit()
    assert trainer.result.status == "failed"


def test_a_nan_evaluation_is_neither_best_nor_in_the_way_of_the_next(tmp_path):
    trainer = make_trainer(
        n=4,
        eval_on=2,
        n_epochs=3,
        metrics=Scripted(float("nan"), float("inf"), 0.1),
        monitor="accuracy",
        checkpoint=CheckpointStore(tmp_path),
    )
    assert trainer.fit().best_step == 3
