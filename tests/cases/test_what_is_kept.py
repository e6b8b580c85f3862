"""What is on the disk when a run has ended, by itself, by a signal or by an error."""

from __future__ import annotations

import errno
import logging
import threading

import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CallbackError, CheckpointError, DataError, MismatchError
from expkit.core.events import Callback
from expkit.data import Data
from expkit.data.dataset import ArrayDataset
from expkit.optimizers import Adam
from tests.cases.parts import (
    Probe,
    Records,
    Scripted,
    assert_same,
    fail,
    interrupted,
    make_trainer,
    resumed,
    samples,
)


class Fragile:
    """Samples of which one cannot be read at a given reading of it."""

    def __init__(self, broken: int, reading: int) -> None:
        self.rows = ArrayDataset(samples(20))
        self.left = {broken: reading}

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, indices):
        for index in indices.tolist():
            if index in self.left:
                self.left[index] -= 1
                if self.left[index] == 0:
                    raise OSError(errno.EIO, "Input/output error")
        return self.rows.fetch(indices)


def make(framework, root, dataset=None, **options):
    data = Data(dataset if dataset is not None else samples(20), samples(6, 1), batch_size=4)
    made = {"data": data, "mlp": {"dropout": 0.3}, "save_every": None, "n_epochs": 3}
    store = None if root is None else CheckpointStore(root)
    return make_trainer(framework, checkpoint=store, **{**made, **options})


def test_an_evaluation_after_the_last_save_is_kept_too(tmp_path):
    def make_it():
        return make(
            "numpy",
            tmp_path,
            n_epochs=1,
            save_every=5,
            eval_every=7,
            monitor="accuracy",
            metrics=Scripted(0.5),
        )

    trainer = make_it()
    assert trainer.fit().best_step == 5
    best = CheckpointStore(tmp_path).best()
    assert (best.step, best.score) == (5, 0.5)
    again = resumed(make_it(), tmp_path)
    again.fit()
    assert again._logger.steps("eval") == []  # it was made and recorded before


def test_an_error_between_two_steps_leaves_a_checkpoint_to_go_on_from_exactly(
    framework, tmp_path, caplog
):
    straight = make(framework, None)
    straight.fit()
    # The first batch of the second epoch: the run stands after its step 5.
    broken = Fragile(int(next(iter(straight._loader.windows(1))).batches[0].indices[0]), reading=2)
    with caplog.at_level(logging.INFO), pytest.raises(DataError, match="Input/output error"):
        make(framework, tmp_path, broken).fit()
    assert "saved after step 5, the last before the error" in caplog.text
    again = resumed(make(framework, tmp_path), tmp_path)
    again.fit()
    assert_same(straight.state(), again.state())


def test_an_error_inside_a_step_leaves_the_checkpoint_before_it(tmp_path):
    trainer = make("numpy", tmp_path, save_every=2, callbacks=[Probe({5: fail(ValueError("no"))})])
    with pytest.raises(CallbackError):
        trainer.fit()
    assert CheckpointStore(tmp_path).last().step == 4


def test_an_error_while_an_evaluation_is_due_saves_no_step_without_it(tmp_path):
    class Refuses(Callback):
        def eval_start(self, context):
            raise ValueError("no")

    with pytest.raises(CallbackError):
        make("numpy", tmp_path, eval_every=3, callbacks=[Refuses()]).fit()
    assert CheckpointStore(tmp_path).last() is None


def test_a_stop_signal_saves_even_where_nothing_else_does(tmp_path):
    probe = Probe()
    interrupted(make("numpy", tmp_path, callbacks=[probe]), probe, step=4)
    assert CheckpointStore(tmp_path).last().step == 4


def test_a_failed_write_ends_the_run_after_the_next_step(tmp_path, monkeypatch):
    wrote = threading.Event()

    def no_space(*args, **kwargs):
        wrote.set()
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    monkeypatch.setattr("expkit.checkpoint.directory.write", no_space)
    probe = Probe({4: lambda context: wrote.wait(5)})
    trainer = make("numpy", tmp_path, save_every=3, n_epochs=100, callbacks=[probe])
    with pytest.raises(CheckpointError, match="ENOSPC"):
        trainer.fit()
    assert trainer.progress.step in (4, 5)


@pytest.mark.parametrize("background", [True, False])
def test_the_state_is_copied_only_where_it_is_written_later(framework, tmp_path, background):
    store = CheckpointStore(tmp_path, background=background)
    trainer = make_trainer(framework, checkpoint=store, n_epochs=1, optimizer=Adam(lr=0.01))
    asked, take = [], trainer.driver.state

    def state(copies):
        asked.append(copies)
        return take(copies)

    trainer.driver.state = state
    trainer.fit()
    assert asked == [background]
    kept, _ = CheckpointStore(tmp_path).load("last")
    assert_same(kept["model"], trainer.driver.model_state())


def test_one_state_at_a_time_is_held(tmp_path, monkeypatch):
    writing, most = [], []
    store = CheckpointStore(tmp_path)
    real = store._write

    def write(*args):
        writing.append(1)
        real(*args)
        writing.pop()

    monkeypatch.setattr(store, "_write", write)
    trainer = make_trainer("numpy", checkpoint=store, save_every=1, logger=Records())
    take = trainer.driver.state

    def state(copies):
        most.append(len(writing))
        return take(copies)

    monkeypatch.setattr(trainer.driver, "state", state)
    trainer.fit()
    assert most == [0] * 15


def test_what_a_callback_has_logged_for_the_next_record_is_kept(tmp_path):
    def note(context):
        context.log({"seen": float(context.progress.step)})

    def run(root, stop_at=None, state=None):
        probe = Probe({5: note})
        store = None if root is None else CheckpointStore(root)
        trainer = make_trainer("numpy", checkpoint=store, callbacks=[probe], log_every=4)
        if stop_at:
            interrupted(trainer, probe, stop_at)
        else:
            if root is not None:
                resumed(trainer, root)
            trainer.fit()
        return trainer

    straight = run(None)._logger.of("train", "seen")
    first = run(tmp_path, stop_at=6)._logger.of("train", "seen")
    assert first | run(tmp_path)._logger.of("train", "seen") == straight == {8: 5.0}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trainer", "progress", "step"), -3),
        (("trainer", "progress", "epoch_step"), 99),
        (("trainer", "progress", "epoch"), "one"),
        (("trainer", "losses"), 7),
        (("trainer", "best"), None),
        (("schedules",), []),
        (("optimizer",), {"default": 3}),
    ],
)
def test_what_is_no_state_is_refused_and_nothing_is_removed(tmp_path, path, value):
    store = CheckpointStore(tmp_path, keep_last=None)
    make_trainer("numpy", checkpoint=store, save_every=5).fit()
    state, _ = store.load("last")
    part = state
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    trainer = make_trainer("numpy", checkpoint=CheckpointStore(tmp_path, keep_last=None))
    with pytest.raises(MismatchError) as caught:
        trainer.load_state(state)
    assert caught.value.exit_code == 2
    assert len(list(tmp_path.glob("step-*"))) == 3
