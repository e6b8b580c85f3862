"""The loop, proven on the reference driver."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.collective import SingleProcess
from expkit.core.errors import CallbackError, CheckpointError, ConfigError, DataError, StepError
from expkit.core.events import Callback, on
from expkit.core.store import MemoryStore
from expkit.data import Data
from expkit.metrics import Accuracy, MetricSet
from expkit.schedules import Plateau
from tests.cases.parts import (
    Consumed,
    Events,
    Probe,
    Scripted,
    assert_same,
    fail,
    make_driver,
    make_trainer,
    samples,
    stop,
    weights,
)

STEP_EVENTS = (
    "batch_start",
    "loss_start",
    "backward_start",
    "backward_end",
    "step_start",
    "step_end",
    "batch_end",
)

# -- how long ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "steps", "epochs"),
    [
        ({"n_epochs": 4}, 20, 4),
        ({"max_steps": 5}, 5, 1),
        ({"max_steps": 7}, 7, 1),
        ({"n_epochs": None, "max_steps": 12}, 12, 2),
        ({"n_epochs": 2, "max_steps": 100}, 10, 2),
        ({"n_epochs": 0}, 0, 0),
        ({"max_steps": 0}, 0, 0),
    ],
)
def test_whichever_limit_comes_first_ends_the_run(limits, steps, epochs):
    result = make_trainer(**limits).fit()
    assert (result.status, result.steps, result.epochs) == ("completed", steps, epochs)


def test_a_limit_in_time_ends_the_run_after_the_step_under_way(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def pass_a_second(context):
        clock[0] += 1.0

    probe = Probe(dict.fromkeys(range(1, 16), pass_a_second))
    result = make_trainer(max_time=6.5, callbacks=[probe]).fit()
    assert (result.status, result.steps, result.seconds) == ("completed", 7, 7.0)
    assert result.reason == "trainer.max_time=6.5 s is over"


@pytest.mark.parametrize(
    "limits",
    [{"n_epochs": -1}, {"n_epochs": "five"}, {"n_epochs": 2.5}, {"max_time": float("nan")}],
)
def test_a_limit_that_is_no_amount_is_refused(limits):
    (key,) = limits
    with pytest.raises(ConfigError, match=rf"trainer\.{key}: is .*; allowed: "):
        make_trainer(**limits)


def test_no_limit_at_all_is_refused():
    with pytest.raises(ConfigError, match=r"never end.*trainer\.max_steps=1000"):
        make_trainer(n_epochs=None)


# -- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eval_every", "steps"),
    [
        ("1ep", [5, 10, 15, 20]),
        ("2ep", [10, 20]),
        (3, [3, 6, 9, 12, 15, 18]),
        ("3", [3, 6, 9, 12, 15, 18]),
        (lambda progress: progress.step in (2, 13), [2, 13]),
    ],
)
def test_evaluations_fall_on_their_steps(eval_every, steps):
    trainer = make_trainer(n_epochs=4, eval_every=eval_every, eval_on=4)
    trainer.fit()
    assert trainer._logger.steps("eval") == steps


def test_a_run_too_short_for_its_period_is_evaluated_once_at_its_end():
    for eval_at_start in (False, True):
        trainer = make_trainer(max_steps=3, eval_on=4, eval_at_start=eval_at_start)
        trainer.fit()
        assert trainer._logger.steps("eval") == ([0, 3] if eval_at_start else [3])


def test_no_period_is_no_evaluation():
    trainer = make_trainer(eval_every=None, eval_on=4, monitor="-loss")
    result = trainer.fit()
    assert trainer._logger.steps("eval") == []
    assert (result.best_step, result.objective, result.metrics) == (None, None, {})


@pytest.mark.parametrize(
    "key", ["trainer.eval_every", "trainer.log_every", "checkpoint.save_every"]
)
@pytest.mark.parametrize("value", [0, -1, "0ep", "ep", 1.5, True, ""])
def test_a_period_that_is_none_is_refused(key, value):
    with pytest.raises(ConfigError, match=rf"{key}: is .*{key}=1ep"):
        make_trainer(**{key.partition(".")[2]: value})


def test_an_evaluation_at_the_start_touches_neither_best_nor_random_state():
    states, results = [], []
    for eval_at_start in (False, True):
        random.seed(0)
        np.random.seed(0)
        trainer = make_trainer(
            mlp={"dropout": 0.5},
            metrics=Scripted(*([9.0] * eval_at_start), 0.1, 0.3, 0.2),
            monitor="accuracy",
            eval_on=4,
            eval_at_start=eval_at_start,
        )
        results.append(trainer.fit())
        states.append(trainer.state())
    assert_same(*states)
    assert results[1].best_eval == results[0].best_eval
    assert (results[1].best_step, results[1].objective) == (10, 0.3)


def test_records_are_means_over_the_steps_since_the_last():
    each = make_trainer(log_every=1)
    third = make_trainer(log_every=3)
    each.fit()
    third.fit()
    single = each._logger.of("train", "loss")
    expected = {s: np.mean([single[s - 2], single[s - 1], single[s]]) for s in (3, 6, 9, 12, 15)}
    assert third._logger.of("train", "loss") == pytest.approx(expected, rel=1e-12)
    epochs = {s: np.mean([single[s - k] for k in range(5)]) for s in (5, 10, 15)}
    assert third._logger.of("train", "epoch_loss") == pytest.approx(epochs, rel=1e-12)


def test_checkpoints_fall_on_their_steps_and_on_the_last(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=None)
    make_trainer(save_every=4, checkpoint=store, max_steps=10).fit()
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000004",
        "step-00000008",
        "step-00000010",
    ]


def test_a_checkpoint_between_two_evaluations_has_no_metrics_and_no_rank(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=None)
    options = {"metrics": Scripted(0.5, 0.4), "monitor": "accuracy", "eval_on": 4}
    make_trainer(save_every=4, checkpoint=store, max_steps=10, **options).fit()
    infos = [store.load(path)[1] for path in sorted(tmp_path.glob("step-*"))]
    assert [(info.step, info.score) for info in infos] == [
        (4, None),
        (5, 0.5),
        (8, None),
        (10, 0.4),
    ]
    assert [info.metrics.get("accuracy") for info in infos] == [None, 0.5, None, 0.4]


def test_no_period_of_saving_keeps_the_best_alone(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=None)
    options = {"metrics": Scripted(0.2, 0.5, 0.1), "monitor": "accuracy", "eval_on": 4}
    make_trainer(save_every=None, checkpoint=store, **options).fit()
    assert [path.name[-2:] for path in sorted(tmp_path.glob("step-*"))] == ["05", "10"]


def test_callbacks_may_ask_for_an_evaluation_and_a_checkpoint(tmp_path):
    probe = Probe({3: lambda c: c.request_eval(), 4: lambda c: c.request_save()})
    store = CheckpointStore(tmp_path, keep_last=None)
    trainer = make_trainer(
        callbacks=[probe], eval_every=None, save_every=None, eval_on=4, checkpoint=store
    )
    trainer.fit()
    assert trainer._logger.steps("eval") == [3]
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000004"]


# -- what of the data ----------------------------------------------------------------------------


def test_overfitting_takes_the_same_2_batches_each_epoch_and_evaluates_on_them():
    consumed, seen = Consumed(), []

    class Look(Scripted):
        def update(self, outputs, fields, weights):
            seen.extend(fields["index"].tolist())

    trainer = make_trainer(
        overfit_batches=2, eval_on=6, metrics=Look(), callbacks=[consumed], n_epochs=2
    )
    assert trainer.fit().steps == 4
    assert [indices for _, _, indices in consumed.rows] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    assert seen == [*range(8)] * 2


def test_limits_of_batches_shorten_the_epoch_and_the_evaluation():
    seen = []

    class Look(Scripted):
        def update(self, outputs, fields, weights):
            seen.append(len(fields["index"]))

    data = Data(samples(20), samples(20, 1), batch_size=4, eval_batch_size=3)
    trainer = make_trainer(
        data=data, limit_train_batches=2, limit_eval_batches=2, metrics=Look(), n_epochs=2
    )
    assert trainer.fit().steps == 4
    assert seen == [3, 3] * 2


@pytest.mark.parametrize("option", ["limit_train_batches", "limit_eval_batches", "overfit_batches"])
def test_a_limit_of_no_batch_is_refused(option):
    with pytest.raises(ConfigError, match=rf"trainer\.{option}: is -1"):
        make_trainer(**{option: -1}, eval_on=4)


def test_each_epoch_has_its_own_order_and_the_same_in_each_run():
    rows = []
    for _ in range(2):
        consumed = Consumed()
        make_trainer(callbacks=[consumed]).fit()
        rows.append(consumed.rows)
        orders = [consumed.of_epoch(epoch) for epoch in range(3)]
        assert orders[0] != orders[1] != orders[2]
        assert all(sorted(order) == list(range(20)) for order in orders)
    assert rows[0] == rows[1]


def test_the_order_is_not_changed_by_evaluations_callbacks_or_checkpoints(tmp_path):
    plain, busy = Consumed(), Consumed()
    make_trainer(callbacks=[plain]).fit()

    @on("batch_start")
    def draw(context, batch, indices):
        random.random()
        np.random.rand()

    make_trainer(
        callbacks=[busy, draw],
        eval_every=1,
        eval_on=4,
        save_every=1,
        checkpoint=CheckpointStore(tmp_path),
    ).fit()
    assert plain.rows == busy.rows


# -- callbacks -----------------------------------------------------------------------------------


def test_callbacks_that_override_no_event_of_a_step_are_not_called_in_it():
    calls = []

    class Counted(Callback):
        def __getattribute__(self, name):
            calls.append(name)
            return super().__getattribute__(name)

        def eval_end(self, context, metrics):
            pass

    trainer = make_trainer(callbacks=[Callback(), Counted()], eval_on=4)
    assert all(getattr(trainer.events, event) == () for event in STEP_EVENTS)
    calls.clear()
    trainer.fit()
    assert set(calls) <= {"state", "gives_copies", "eval_end"}


def test_filters_choose_among_the_steps_of_a_run():
    seen = {"every": [], "once": [], "when": []}
    trainer = make_trainer(
        max_steps=7,
        callbacks=[
            on("step_end", every=3)(lambda c: seen["every"].append(c.progress.step)),
            on("step_end", once=2)(lambda c: seen["once"].append(c.progress.step)),
            on("step_end", when=lambda n: n > 5)(lambda c: seen["when"].append(c.progress.step)),
        ],
    )
    trainer.fit()
    assert seen == {"every": [3, 6], "once": [2], "when": [6, 7]}


def test_a_callback_for_the_main_rank_is_silent_on_the_others():
    driver = make_driver("numpy")
    driver.group = SingleProcess()
    driver.group.rank, driver.group.world_size = 1, 2
    main, everywhere = Events(), Events()
    main.run_on = "main"
    trainer = make_trainer(driver=driver, callbacks=[main, everywhere], n_epochs=1)
    assert trainer.fit().steps == 3  # of 20 samples each rank has 10, in batches of 4
    assert main.calls == []
    assert everywhere.calls.count("step_end") == 3


def test_what_callbacks_log_is_in_the_next_record_only():
    probe = Probe({2: lambda c: c.log({"extra": 1.0})})
    trainer = make_trainer(callbacks=[probe], log_every=3)
    trainer.fit()
    assert trainer._logger.of("train", "extra") == {3: 1.0}


def test_callbacks_see_the_state_that_is_saved_and_loaded(tmp_path):
    class Keeper(Callback):
        def save(self, context, state):
            state["mine"] = {"step": context.progress.step}

        def load(self, context, state):
            self.loaded = state["mine"]

    make_trainer(checkpoint=CheckpointStore(tmp_path), callbacks=[Keeper()], max_steps=5).fit()
    keeper = Keeper()
    make_trainer(callbacks=[keeper]).load_state(CheckpointStore(tmp_path).load("last")[0])
    assert keeper.loaded == {"step": 5}


# -- how it ends ---------------------------------------------------------------------------------


def broken(error, **options):
    return make_trainer(callbacks={"probe": Probe({3: fail(error)})}, **options)


def test_an_error_surfaces_with_the_name_of_its_callback_and_its_cause():
    trainer = broken(ValueError("bad sample 7"))
    with pytest.raises(
        CallbackError, match=r"callback probe raised in step_end.*bad sample 7"
    ) as e:
        trainer.fit()
    assert isinstance(e.value.__cause__, ValueError)
    assert (trainer.result.status, trainer.result.steps) == ("failed", 3)
    assert "bad sample 7" in trainer.result.reason


def test_an_error_in_a_step_names_the_samples_of_its_micro_batch():
    trainer = make_trainer(accumulate=2, batch_size=2)
    calls, loss = [], trainer.driver.loss

    def fail_in_the_second(outputs, batch):
        calls.append(batch.indices.tolist())
        if len(calls) == 4:
            raise ZeroDivisionError("no")
        return loss(outputs, batch)

    trainer.driver.loss = fail_in_the_second
    with pytest.raises(StepError) as e:
        trainer.fit()
    assert str(e.value).startswith(f"step 2 on samples {calls[3]} failed: ZeroDivisionError: no")
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_a_sample_that_cannot_be_read_is_named():
    class Broken:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 5:
                raise OSError("disk")
            return {"x": np.zeros(6, np.float32), "y": 0}

    with pytest.raises(DataError, match="sample 5 cannot be read: OSError: disk"):
        make_trainer(data=Data(Broken(), batch_size=4)).fit()


def test_ignore_ends_quietly_and_says_what_it_was(caplog):
    result = broken(ValueError("bad"), on_exception="ignore").fit()
    assert (result.status, result.steps) == ("failed", 3)
    assert "ValueError: bad" in result.reason
    assert [r.levelno for r in caplog.records if "training ended early" in r.message] == [
        logging.ERROR
    ]


@pytest.mark.parametrize("on_exception", ["auto", "ignore"])
def test_ctrl_c_ends_quietly(on_exception):
    result = broken(KeyboardInterrupt(), on_exception=on_exception).fit()
    assert (result.status, result.reason, result.steps) == ("interrupted", "KeyboardInterrupt", 3)


def test_raise_raises_ctrl_c_and_stop_signals_too(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        broken(KeyboardInterrupt(), on_exception="raise").fit()
    probe = Probe()
    trainer = make_trainer(
        on_exception="raise", checkpoint=CheckpointStore(tmp_path), callbacks=[probe]
    )
    probe.actions[2] = lambda context: trainer.interrupt("SIGTERM")
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        trainer.fit()
    assert CheckpointStore(tmp_path).last().step == 2
    assert trainer.result.status == "interrupted"


def test_another_word_for_errors_is_refused():
    with pytest.raises(
        ConfigError, match=r"trainer\.on_exception: is 'hide'; allowed: auto, raise"
    ):
        make_trainer(on_exception="hide")


def test_callbacks_are_told_of_an_error_and_cannot_hide_it(caplog):
    class Worse(Callback):
        def exception(self, context, error):
            raise RuntimeError("worse")

    trainer = make_trainer(callbacks=[Worse(), Probe({1: fail(ValueError("first"))})])
    with pytest.raises(CallbackError, match="first"):
        trainer.fit()
    assert "worse" in caplog.text


def test_a_requested_stop_is_success(tmp_path):
    store = CheckpointStore(tmp_path)
    result = make_trainer(callbacks=[Probe({4: stop})], checkpoint=store).fit()
    assert (result.status, result.reason, result.steps) == ("completed", "the test says so", 4)
    assert CheckpointStore(tmp_path).last().step == 4


def test_a_stop_before_the_first_step_ends_with_none():
    trainer = make_trainer()
    trainer.interrupt("SIGTERM")
    result = trainer.fit()
    assert (result.status, result.steps) == ("interrupted", 0)


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_training_stays_intact(tmp_path):
    (tmp_path / "file").write_text("in the way")
    trainer = make_trainer(checkpoint=CheckpointStore(tmp_path / "file"), max_steps=5)
    with pytest.raises(CheckpointError, match="cannot write checkpoint"):
        trainer.fit()
    assert trainer.progress.step == 5
    assert trainer.result.status == "failed"


# -- what it comes to ----------------------------------------------------------------------------


def test_the_result_tells_the_best_and_the_last_evaluation():
    trainer = make_trainer(
        metrics=Scripted(0.2, 0.6, 0.4), monitor="accuracy", eval_on=4, load_best=False
    )
    result = trainer.fit()
    assert result is trainer.result
    assert (result.best_eval["accuracy"], result.best_epoch, result.best_step) == (0.6, 1, 10)
    assert (result.metrics["accuracy"], result.objective) == (0.4, 0.6)
    assert (result.status, result.reason, result.epochs, result.steps) == ("completed", None, 3, 15)
    assert result.seconds > 0
    assert result.to_dict()["best_step"] == 10


def test_smaller_is_better_with_a_minus():
    trainer = make_trainer(metrics=Scripted(0.2, 0.6, 0.1), monitor="-accuracy", eval_on=4)
    assert trainer.fit().objective == 0.1


def test_the_best_weights_stay_only_where_that_is_wanted():
    left = {}
    for load_best in (True, False):
        trainer = make_trainer(
            metrics=Scripted(0.2, 0.6, 0.1), monitor="accuracy", eval_on=4, load_best=load_best
        )
        trainer.fit()
        left[load_best] = weights(trainer)
    plain = make_trainer()
    plain.fit()
    np.testing.assert_array_equal(left[False], weights(plain))
    second = make_trainer(n_epochs=2)
    second.fit()
    np.testing.assert_array_equal(left[True], weights(second))


def test_arrays_in_place_of_data_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"data: is a dict.*allowed: expkit\.data\.Data"):
        make_trainer(data=samples(8))


def test_a_monitor_without_an_evaluation_set_is_said_once(caplog):
    make_trainer(monitor="-loss").fit()
    assert [record.getMessage() for record in caplog.records] == [
        "monitor=-loss decides nothing: there is no evaluation set"
    ]
    caplog.clear()
    make_trainer(monitor="-loss", eval_on=4).fit()
    make_trainer().fit()
    assert not caplog.records


def test_a_run_without_an_evaluation_has_no_best_and_no_error():
    assert make_trainer(monitor="accuracy").fit().best_eval == {}
    stopped = make_trainer(
        monitor="-loss", eval_on=4, callbacks=[Probe({2: stop})], eval_every=None
    )
    assert stopped.fit().best_step is None


def test_the_trainer_learns():
    data = Data(samples(400), samples(100), batch_size=20)
    metrics = MetricSet({"accuracy": Accuracy()})
    result = make_trainer(data=data, metrics=metrics, monitor="accuracy", n_epochs=15).fit()
    assert result.best_eval["accuracy"] > 0.9


@pytest.mark.parametrize("lacking", [{"monitor": None}, {"eval_every": None}, {"eval_on": 0}])
def test_a_schedule_that_follows_a_metric_needs_one(lacking):
    options = {"monitor": "-loss", "eval_on": 4} | lacking
    with pytest.raises(ConfigError, match=r"schedule: Plateau follows.*monitor=-loss"):
        make_trainer(schedule=Plateau(), **options)


def test_a_store_is_asked_for_nothing_where_nothing_was_trained():
    class Silent(MemoryStore):
        def save(self, *args, **kwargs):
            raise AssertionError("nothing to save")

    make_trainer(checkpoint=Silent(), n_epochs=0).fit()


def test_a_store_that_is_none_is_refused_by_name():
    class Box:
        def save(self, state, **about):
            pass

    with pytest.raises(ConfigError, match=r"checkpoint: is a Box, which is no expkit\.checkpoint"):
        make_trainer(checkpoint=Box())
