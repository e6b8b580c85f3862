"""Theme 7: what is best, when to stop, and the order of evaluation and saving."""

from __future__ import annotations

import logging
import math

import pytest

from expkit.callbacks.early_stop import EarlyStop
from expkit.checkpoint import CheckpointStore
from expkit.core.errors import ConfigError
from tests.cases.parts import Probe, Scripted, make_trainer, stop


def scripted(tmp_path, *values, keep_best=1, keep_last=1, **options):
    """One step and one evaluation an epoch; the trainer after its run."""
    defaults = {"n": 4, "n_epochs": len(values), "eval_on": 2, "metrics": Scripted(*values)}
    store = CheckpointStore(tmp_path, keep_best=keep_best, keep_last=keep_last)
    trainer = make_trainer(checkpoint=store, **{**defaults, **options})
    trainer.fit()
    store.close()
    return trainer


def kept(root):
    return sorted(int(path.name.removeprefix("step-")) for path in root.glob("step-*"))


@pytest.mark.parametrize(
    ("monitor", "best", "steps"), [("accuracy", 3, [3, 4]), ("-accuracy", 2, [2, 4])]
)
def test_nan_is_never_best(tmp_path, caplog, monitor, best, steps):
    """Case 68."""
    trainer = scripted(tmp_path, math.nan, 0.3, 0.5, 0.4, monitor=monitor, keep_best=2)
    assert trainer.result.best_step == best
    assert CheckpointStore(tmp_path).best().step == best
    assert kept(tmp_path) == steps
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == ["accuracy has no value at step 1; this evaluation cannot be the best"]


def test_an_unknown_monitor_is_told_at_the_first_evaluation_with_what_there_is(tmp_path):
    """Case 70."""
    with pytest.raises(ConfigError, match=r"monitor: 'acurracy'.*gives: accuracy, loss.*accuracy"):
        scripted(tmp_path, 0.1, 0.2, monitor="acurracy")
    with pytest.raises(ConfigError, match="gives: accuracy, loss"):
        scripted(tmp_path, 0.1, 0.2, monitor="acurracy", eval_at_start=True, max_steps=0)


def test_a_metric_that_is_absent_once_is_a_warning(tmp_path, caplog):
    """Case 70, the second part."""
    trainer = scripted(tmp_path, 0.1, None, 0.2, 0.15, monitor="accuracy")
    assert trainer.result.best_step == 3
    assert "accuracy has no value at step 2" in caplog.text


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_checkpoint_has_the_evaluation_of_its_own_step(tmp_path, place):
    """Case 72."""
    steps = []
    probe = Probe({step: lambda c: steps.append(c.progress.step) for step in range(1, 31)})
    early = EarlyStop(monitor="accuracy", patience=9)
    callbacks = [probe, early] if place == "first" else [early, probe]
    scripted(
        tmp_path,
        *[lambda: float(steps[-1])] * 3,
        n_epochs=30,
        eval_every=10,
        save_every=10,
        keep_last=None,
        callbacks=callbacks,
    )
    store = CheckpointStore(tmp_path)
    found = [store.load(path)[1].metrics["accuracy"] for path in sorted(tmp_path.glob("step-*"))]
    assert found == [10.0, 20.0, 30.0]


def test_a_requested_stop_ends_with_a_checkpoint_of_that_step(framework, tmp_path):
    """Case 74, on one rank."""
    store = CheckpointStore(tmp_path)
    trainer = make_trainer(framework, checkpoint=store, callbacks=[Probe({6: stop})])
    result = trainer.fit()
    assert (result.steps, result.status, result.reason) == (6, "completed", "the test says so")
    assert CheckpointStore(tmp_path).last().step == 6


def test_patience_2_stops_after_the_fourth_evaluation(tmp_path):
    """Accuracies .1, .5, .4, .3, .2."""
    trainer = scripted(
        tmp_path,
        *[0.1, 0.5, 0.4, 0.3, 0.2],
        monitor="accuracy",
        callbacks=[EarlyStop(patience=2)],
    )
    result = trainer.result
    assert (result.steps, result.status, result.best_step) == (4, "completed", 2)
    assert result.objective == 0.5


def test_of_equal_values_the_first_is_best(tmp_path):
    assert scripted(tmp_path, 0.5, 0.5, monitor="accuracy").result.best_step == 1


@pytest.mark.parametrize("keep", ["disk", "memory"])
def test_the_weights_of_the_best_evaluation_stay(framework, tmp_path, keep):
    seen = {}

    def note(context):
        seen[context.progress.step] = context.driver.model_state()["layers.output.bias"]

    trainer = make_trainer(
        framework,
        n=4,
        n_epochs=4,
        eval_on=2,
        metrics=Scripted(0.1, 0.7, 0.3, 0.2),
        monitor="accuracy",
        checkpoint=CheckpointStore(tmp_path) if keep == "disk" else None,
        callbacks=[Probe(dict.fromkeys(range(1, 5), note))],
    )
    assert trainer.fit().best_step == 2
    left = trainer.driver.model_state()["layers.output.bias"]
    assert left.tolist() == seen[2].tolist() != seen[4].tolist()
