"""A position in an epoch means samples: it must not be read with steps of another size."""

from __future__ import annotations

import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import ConfigError
from expkit.data import Data, Random
from expkit.schedules import Linear
from tests.cases.parts import (
    Consumed,
    Probe,
    close_store,
    interrupted,
    make_trainer,
    resumed,
    samples,
)


def stopped_after(step, root, **data):
    probe = Probe()
    trainer = make_trainer(
        "numpy",
        data=Data(samples(20), **{"batch_size": 4, **data}),
        callbacks=[probe],
        checkpoint=CheckpointStore(root),
    )
    interrupted(trainer, probe, step)
    close_store(trainer)


def going_on(root, data=None, **options):
    consumed = Consumed()
    trainer = make_trainer(
        "numpy",
        data=Data(samples(20), **{"batch_size": 4, **(data or {})}),
        callbacks=[consumed],
        checkpoint=CheckpointStore(root),
        **options,
    )
    resumed(trainer, root)
    return trainer, consumed


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        ({"batch_size": 2}, {}, r"samples per step 2 \(was 4\)"),
        ({"batch_size": 8}, {}, r"samples per step 8 \(was 4\)"),
        ({}, {"accumulate": 2}, r"samples per step 8 \(was 4\)"),
        ({}, {"limit_train_batches": 3}, r"samples per epoch 12 \(was 20\)"),
        ({"sampler": Random(seed=7)}, {}, "order begins"),
    ],
    ids=["smaller", "larger", "accumulate", "limit", "order"],
)
def test_inside_an_epoch_other_steps_are_refused(tmp_path, data, options, named):
    stopped_after(2, tmp_path)
    with pytest.raises(ConfigError, match=named) as caught:
        going_on(tmp_path, data, **options)
    assert caught.value.exit_code == 2
    assert "init_from" in str(caught.value)


@pytest.mark.parametrize("batch_size", [2, 8])
def test_a_schedule_ends_with_the_run_also_where_epochs_have_other_steps_now(tmp_path, batch_size):
    stopped_after(5, tmp_path)
    trainer, _ = going_on(tmp_path, {"batch_size": batch_size}, n_epochs=3, schedule=Linear())
    steps = 5 + 2 * -(-20 // batch_size)
    assert trainer.progress.total_steps == steps
    trainer.fit()
    assert trainer.progress.step == steps
    straight = Linear()
    straight.prepare(steps, None, 0.01)
    assert trainer.driver.learning_rates()["lr"] == 0.01 * straight.factor(steps)


@pytest.mark.parametrize("batch_size", [2, 8])
def test_between_epochs_the_data_may_be_cut_in_another_way(tmp_path, batch_size):
    stopped_after(5, tmp_path)
    trainer, consumed = going_on(tmp_path, {"batch_size": batch_size}, n_epochs=2)
    trainer.fit()
    assert sorted(consumed.of_epoch(1)) == list(range(20))
    assert not consumed.of_epoch(0)
