"""Themes 2 and 7: callbacks of a resumed run go on where they were, and so does what they do."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from expkit.callbacks import ExponentialMovingAverage
from expkit.checkpoint import CheckpointStore
from expkit.core.events import Callback
from expkit.data import Data
from tests.cases.parts import Probe, assert_same, interrupted, make_trainer, resumed, samples
from tests.cases.watched import NOTED, spoilt, train


def in_parts(framework, root, stops):
    """See `train`; checkpoints are below ``root``."""

    def make(**options):
        return make_trainer(
            framework,
            data=Data(spoilt(20), samples(6, 1), batch_size=4),
            checkpoint=CheckpointStore(root),
            monitor="accuracy",
            mlp={"dropout": 0.5},
            eval_every=2,
            log_every=1,
            **options,
        )

    return train(make, lambda trainer: resumed(trainer, root), stops)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run in one part, by framework."""
    runs = {}

    def get(framework):
        if framework not in runs:
            root = tmp_path_factory.mktemp(framework)
            runs[framework] = (*in_parts(framework, root, []), root)
        return runs[framework]

    return get


def test_the_undisturbed_run_has_all_that_is_to_be_kept(framework, undisturbed):
    trainer, notes, _, root = undisturbed(framework)
    assert notes == NOTED
    result = trainer.result
    assert "early stop" in result.reason
    assert result.best_step == 4
    assert result.skipped_steps >= 2
    state, info = CheckpointStore(root).load("last")
    assert info.step == 12
    assert state["callbacks"]["guard"]["num_skipped"] == result.skipped_steps
    assert state["callbacks"].keys() == {
        *("average", "patience", "best", "guard", "tally", "third", "evaluated", "second")
    }


@pytest.mark.parametrize("stops", [[7], [10], [3, 4, 11]], ids=str)
def test_callbacks_go_on_to_the_last_bit(framework, tmp_path, undisturbed, stops, caplog):
    straight, notes, rows, root = undisturbed(framework)
    caplog.set_level(logging.WARNING, "expkit")
    trainer, noted, logged = in_parts(framework, tmp_path, stops)
    assert (noted, logged) == (notes, rows)
    assert_same(straight.state(), trainer.state())
    for which in ("last", "best"):
        kept = [CheckpointStore(path).load(which) for path in (root, tmp_path)]
        assert kept[0][1].step == kept[1][1].step
        assert_same(kept[0][0], kept[1][0])
    for fact in ("reason", "best_eval", "best_step", "skipped_steps", "metrics"):
        assert getattr(trainer.result, fact) == getattr(straight.result, fact)
    # The guard says once, and not once a part, that it leaves steps out.
    assert [record.name for record in caplog.records] == ["expkit.callbacks.nan_guard"]


def test_the_best_of_an_earlier_part_stays_after_an_early_stop(framework, tmp_path):
    """Row C8: its weights are those of the checkpoint of step 4, of a part before."""
    trainer, *_ = in_parts(framework, tmp_path, [7])
    state, info = CheckpointStore(tmp_path).load("best")
    assert info.step == 4
    assert_same(trainer.driver.model_state(), state["model"])


def test_only_the_average_is_ever_kept_as_the_model(framework, tmp_path):
    """A run without the callback goes on from the average, and is told that it lacks it."""

    probe = Probe()
    callbacks = {"ema": ExponentialMovingAverage(decay=0.8), "probe": probe}
    store = CheckpointStore(tmp_path)
    interrupted(make_trainer(framework, callbacks=callbacks, checkpoint=store), probe, 7)
    kept = CheckpointStore(tmp_path).load("last")[0]
    raw = kept["callbacks"]["ema"]["parameters"]
    seen = []

    class Look(Callback):
        def fit_start(self, context):
            seen.append(context.driver.model_state())

    for callbacks in ({"look": Look()}, {"ema": ExponentialMovingAverage(), "look": Look()}):
        trainer = make_trainer(framework, callbacks=callbacks)
        trainer.load_state(kept)
        trainer.fit()
    assert_same(seen[0], kept["model"])
    assert_same(seen[1], kept["model"] | raw)
    assert any((kept["model"][path] != array).any() for path, array in raw.items())


def test_a_callback_that_is_gone_is_named_once_and_one_that_is_new_begins(tmp_path, caplog):
    probe = Probe()
    first = make_trainer(
        callbacks={"ema": ExponentialMovingAverage(), "probe": probe},
        checkpoint=CheckpointStore(tmp_path),
    )
    interrupted(first, probe, 7)
    updates = Probe()
    second = make_trainer(callbacks={"new": updates}, checkpoint=CheckpointStore(tmp_path))
    resumed(second, tmp_path).fit()
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == [
        "the checkpoint has the state of callbacks that this run lacks: ema; it is dropped"
    ]
    assert updates.updates == 8


def test_the_checkpoint_of_a_run_without_stateful_callbacks_holds_nothing_of_them(tmp_path):
    make_trainer(callbacks=[Probe()], checkpoint=CheckpointStore(tmp_path), max_steps=5).fit()
    assert CheckpointStore(tmp_path).load("last")[0]["callbacks"] == {}
    np.testing.assert_equal(make_trainer(callbacks=[Probe()]).state()["callbacks"], {})
