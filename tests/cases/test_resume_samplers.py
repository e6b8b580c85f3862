"""Every sampler goes on after a stop with the samples that come next; weights equal to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import ConfigError, DataError, MismatchError
from expkit.data import Bucketed, Data, Mixed, Random, Sequential, Sorted, Weighted
from tests.cases.parts import (
    Consumed,
    Probe,
    assert_same,
    close_store,
    interrupted,
    make_trainer,
    resumed,
    samples,
)

SAMPLERS = {
    "random": Random,
    "sequential": Sequential,
    "sorted": lambda: Sorted("index", descending=True),
    "bucketed": lambda: Bucketed("size", batches_per_bucket=2),
    "weighted": lambda: Weighted("size", num_samples=27),
    "balanced": lambda: Weighted(by="y"),
    "weighted_once": lambda: Weighted("size", num_samples=19, replacement=False),
    "mixed": Mixed,
    "mixed_least": lambda: Mixed("mixed", "least", {"a": 2, "b": 1}),
    "mixed_most": lambda: Mixed("mixed", "most"),
    "in_turn": lambda: Mixed("in_turn"),
    "in_turn_least": lambda: Mixed("in_turn", "least", shuffle=False),
    "set_by_set": lambda: Mixed("sequential", "most"),
}


def make_data(name):
    rows = samples(23)
    rows["size"] = rows["index"] * 7 % 10
    if name.startswith(("mixed", "in_turn", "set_by_set")):
        cut = {"a": slice(0, 14), "b": slice(14, 23)}
        rows = {part: {key: rows[key][rows_of] for key in rows} for part, rows_of in cut.items()}
    return Data(rows, batch_size=4, sampler=SAMPLERS[name]())


def trainer_of(name, root, **options):
    consumed, probe = Consumed(), Probe()
    trainer = make_trainer(
        data=make_data(name),
        callbacks=[consumed, probe],
        checkpoint=CheckpointStore(root),
        **options,
    )
    return trainer, consumed, probe


def straight(name, root, **options):
    trainer, consumed, _ = trainer_of(name, root, **options)
    trainer.fit()
    close_store(trainer)
    return trainer, consumed.rows


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_goes_on_where_it_stopped(name, tmp_path):
    whole, rows = straight(name, tmp_path / "straight")
    per_epoch = whole.progress.steps_per_epoch
    for stop in (2, per_epoch + 3):
        root = tmp_path / str(stop)
        first, before, probe = trainer_of(name, root)
        close_store(interrupted(first, probe, stop))
        second, after, _ = trainer_of(name, root)
        resumed(second, root).fit()
        close_store(second)
        assert before.rows + after.rows == rows
        assert_same(second.state(), whole.state())


@pytest.mark.parametrize("name", ["bucketed", "mixed", "in_turn"])
def test_a_sampler_that_looks_at_steps_counts_accumulated_ones_whole(name, tmp_path):
    whole, rows = straight(name, tmp_path / "straight", accumulate=2)
    assert whole.progress.steps_per_epoch == 3
    first, before, probe = trainer_of(name, tmp_path / "stopped", accumulate=2)
    close_store(interrupted(first, probe, 4))
    second, after, _ = trainer_of(name, tmp_path / "stopped", accumulate=2)
    resumed(second, tmp_path / "stopped").fit()
    assert before.rows + after.rows == rows
    assert_same(second.state(), whole.state())
    if name == "in_turn":
        steps = {step: [] for _, step, _ in rows[:6]}
        for _, step, indices in rows[:6]:
            steps[step] += indices
        parts = [sorted({index >= 14 for index in indices}) for indices in steps.values()]
        assert parts == [[False], [True], [False, True]]


def test_going_on_inside_an_epoch_with_another_sampler_is_refused(tmp_path):
    first, _, probe = trainer_of("mixed", tmp_path)
    close_store(interrupted(first, probe, 2))
    second, _, _ = trainer_of("in_turn", tmp_path)
    with pytest.raises(ConfigError, match="order begins"):
        resumed(second, tmp_path)
    third, _, _ = trainer_of("mixed", tmp_path)
    resumed(third, tmp_path)


def test_going_on_with_other_sets_is_refused(tmp_path):
    first, _, probe = trainer_of("mixed", tmp_path)
    close_store(interrupted(first, probe, 6))
    data = make_data("mixed")
    data.train.parts["b"].arrays["x"] += np.float32(0.5)
    second = make_trainer(data=data, checkpoint=CheckpointStore(tmp_path))
    with pytest.raises(MismatchError, match="other values of b/x"):
        resumed(second, tmp_path)


def test_labels_of_each_set_are_looked_at_before_training():
    data = make_data("mixed")
    data.train.parts["b"].arrays["y"][3] = 12
    with pytest.raises(DataError, match=r"the training set b: .*12"):
        make_trainer(data=data)
