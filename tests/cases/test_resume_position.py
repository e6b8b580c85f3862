"""Theme 1: where a resumed run stands in the data and in its counters."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.data import Data
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


def stop_and_resume(framework, root, stops, **options):
    """A run that is stopped after each of the steps: trainer, samples and probe of each part."""
    parts = []
    for step in [*stops, None]:
        consumed, probe = Consumed(), Probe()
        trainer = make_trainer(
            framework, callbacks=[consumed, probe], checkpoint=CheckpointStore(root), **options
        )
        if parts:
            resumed(trainer, root)
        if step is None:
            assert trainer.fit().status == "completed"
        else:
            interrupted(trainer, probe, step)
        close_store(trainer)
        parts.append((trainer, consumed, probe))
    return parts


def covers_each_epoch(parts, n, n_epochs):
    for epoch in range(n_epochs):
        seen = [index for _, consumed, _ in parts for index in consumed.of_epoch(epoch)]
        assert sorted(seen) == list(range(n)), epoch


@pytest.mark.parametrize(("stop", "rest"), [(10, 5), (7, 8)])
def test_every_epoch_has_each_sample_once_over_both_runs(framework, tmp_path, stop, rest):
    """Case 1."""
    parts = stop_and_resume(framework, tmp_path, [stop])
    trainer, consumed, _ = parts[1]
    assert len(consumed.rows) == rest
    assert sum(len(indices) for _, _, indices in consumed.rows) == 4 * rest
    assert consumed.rows[0][0] == stop // 5
    assert trainer.progress.step == 15
    covers_each_epoch(parts, 20, 3)


def test_used_samples_are_skipped_once(framework, tmp_path):
    """Case 4."""
    parts = stop_and_resume(framework, tmp_path, [2], n=24, n_epochs=1)
    assert parts[1][1].steps() == [3, 4, 5, 6]
    covers_each_epoch(parts, 24, 1)


@pytest.mark.parametrize(("stop", "lengths"), [(8, [2, 5, 5]), (10, [5, 5])])
def test_epochs_after_a_resume_are_whole(framework, tmp_path, stop, lengths):
    """Case 5."""
    parts = stop_and_resume(framework, tmp_path, [stop], n_epochs=4)
    trainer, consumed, _ = parts[1]
    epochs = [epoch for epoch, _, _ in consumed.rows]
    assert [epochs.count(epoch) for epoch in sorted(set(epochs))] == lengths
    assert trainer.progress.step == 20


def test_the_step_counter_goes_on_where_it_was(framework, tmp_path):
    """Case 7."""
    (first, _, before), (second, _, after) = stop_and_resume(framework, tmp_path, [7], log_every=1)
    assert first._logger.steps("train") == list(range(1, 8))
    assert second._logger.steps("train") == list(range(8, 16))
    assert (before.updates, after.updates) == (7, 8)


def test_two_stops_within_one_epoch_lose_no_sample(framework, tmp_path):
    parts = stop_and_resume(framework, tmp_path, [6, 8])
    assert [consumed.steps()[0] for _, consumed, _ in parts] == [1, 7, 9]
    covers_each_epoch(parts, 20, 3)


def test_resuming_reads_only_what_is_still_to_train(tmp_path):
    """Case 9."""

    class Slow:
        def __init__(self, pause_s):
            self.rows, self.reads, self.pause_s = samples(1000), 0, pause_s

        def __len__(self):
            return 1000

        def __getitem__(self, index):
            self.reads += 1
            time.sleep(self.pause_s)
            return {name: column[index] for name, column in self.rows.items()}

    def trainer(dataset, probe):
        return make_trainer(
            data=Data(dataset, batch_size=10),
            callbacks=[probe],
            checkpoint=CheckpointStore(tmp_path),
            n_epochs=1,
        )

    probe = Probe()
    first = interrupted(trainer(Slow(0.0), probe), probe, 95)
    close_store(first)
    rest, started, waited = Slow(0.02), time.monotonic(), []
    probe = Probe({96: lambda context: waited.append(time.monotonic() - started)})
    assert resumed(trainer(rest, probe), tmp_path).fit().steps == 100
    assert rest.reads == 50
    assert waited[0] < 2


@pytest.mark.parametrize(
    ("stop", "line"), [(7, "step 7, epoch 2 at 2 of 5 steps"), (10, "step 10, epoch 2 done")]
)
def test_a_resume_says_where_it_stands_and_warns_of_nothing(tmp_path, caplog, stop, line):
    """Case 11."""
    caplog.set_level(logging.INFO, "expkit")
    stop_and_resume("numpy", tmp_path, [stop])
    assert [r.message for r in caplog.records if "going on" in r.message] == [
        f"going on after {line}"
    ]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("stop", [3, 6, 7, 10])
def test_resume_is_exact(framework, tmp_path, stop):
    """Weights, optimizer, random state, counters, records and evaluations, to the last bit."""
    options = {
        "mlp": {"dropout": 0.5},
        "eval_on": 6,
        "eval_every": 4,
        "log_every": 2,
        "save_every": "1ep",
        "monitor": "-loss",
        "clip_norm": 1.0,
    }
    (straight, order, _), *_ = stop_and_resume(framework, tmp_path / "straight", [], **options)
    parts = stop_and_resume(framework, tmp_path / "stopped", [stop], **options)
    trainer = parts[1][0]
    assert_same(straight.state(), trainer.state())
    assert [row for _, consumed, _ in parts for row in consumed.rows] == order.rows
    records = [row for part, _, _ in parts for row in part._logger.rows]
    assert records == straight._logger.rows
    assert trainer.result.best_eval == straight.result.best_eval
    assert trainer.result.metrics == straight.result.metrics
    np.testing.assert_array_equal(
        CheckpointStore(tmp_path / "straight").load("best")[0]["model"]["layers.output.bias"],
        CheckpointStore(tmp_path / "stopped").load("best")[0]["model"]["layers.output.bias"],
    )


def test_resume_within_an_accumulated_epoch_is_exact(framework, tmp_path):
    options = {"accumulate": 2, "log_every": 1, "mlp": {"dropout": 0.5}}
    (straight, order, _), *_ = stop_and_resume(framework, tmp_path / "straight", [], **options)
    parts = stop_and_resume(framework, tmp_path / "stopped", [2, 4], **options)
    assert straight.progress.step == 9
    assert_same(straight.state(), parts[-1][0].state())
    assert [row for _, consumed, _ in parts for row in consumed.rows] == order.rows
