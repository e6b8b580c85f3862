"""Themes 4 and 13 on data without a length, on a user's own loader and on a user's own sampler."""

from __future__ import annotations

import random

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import ConfigError
from expkit.core.events import Callback
from expkit.data import Data, OwnLoader, Sequential
from expkit.schedules import Cosine
from tests.cases.parts import Consumed, Records, make_trainer, samples, weights

FRAMEWORKS = ["numpy", "torch", "paddle"]


def rows(n):
    """The samples one by one."""
    columns = samples(n)
    return [{name: column[i] for name, column in columns.items()} for i in range(n)]


class Stream:
    """Shuffles in each epoch, and adds noise."""

    def __init__(self, n=22):
        self.rows = rows(n)

    def __iter__(self):
        order = [*range(len(self.rows))]
        random.shuffle(order)
        for i in order:
            noise = np.random.standard_normal(self.rows[i]["x"].shape).astype(np.float32)
            yield {**self.rows[i], "x": self.rows[i]["x"] + noise}


class Resumable(Stream):
    """Keeps its order and its place in it."""

    def __iter__(self):
        state, self.state = getattr(self, "state", None), None
        order = state["order"] if state else random.sample(range(22), 22)
        for place in range(state["place"] if state else 0, 22):
            self.order, self.place = order, place + 1
            noise = np.random.standard_normal(self.rows[0]["x"].shape).astype(np.float32)
            yield {**self.rows[order[place]], "x": self.rows[order[place]]["x"] + noise}

    def state_dict(self):
        return {"order": self.order, "place": self.place}

    def load_state_dict(self, state):
        self.state = state


class Batches(Stream):
    """Ready batches of 4, 3, 4, 3, ..."""

    def __iter__(self):
        given = [*super().__iter__()]
        while given:
            size = 4 if len(given) % 7 in (0, 1, 4) else 3
            part, given = given[:size], given[size:]
            yield {name: np.stack([row[name] for row in part]) for name in part[0]}


class Sampler:
    """Batches of different sizes."""

    def __iter__(self):
        order = random.sample(range(22), 22)
        for start, stop in ((0, 5), (5, 6), (6, 13), (13, 17), (17, 22)):
            yield order[start:stop]


MAKERS = {
    "stream": lambda: Data(Stream(), batch_size=3),
    "resumable stream": lambda: Data(Resumable(), batch_size=3),
    "stream, drop_last": lambda: Data(Stream(), batch_size=3, drop_last=True),
    "loader": lambda: Data(OwnLoader(Batches())),
    "batch sampler": lambda: Data(rows(22), sampler=Sampler()),
}


def train(framework, data, state=None, **options):
    """A trained trainer, and which samples its steps had."""

    class Seen(Consumed):
        def batch_start(self, context, batch, indices):
            place = context.progress.epoch, context.progress.step + 1
            self.rows.append((*place, batch.fields["index"].tolist()))

    seen = Seen()
    options = {"n_epochs": 3, "mlp": {"dropout": 0.5}, "log_every": 1, **options}
    trainer = make_trainer(framework, data=data, callbacks=[seen], **options)
    if state is not None:
        trainer.load_state(state)
    trainer.fit()
    return trainer, seen.rows


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_stream_is_trained_for_as_many_steps_as_asked(framework):
    """Case 42: 100 samples in batches of 10, 50 steps are five passes."""
    if framework != "numpy":
        pytest.importorskip(framework)
    data = Data(lambda: (yield from rows(100)), batch_size=10)
    trainer, seen = train(framework, data, max_steps=50, n_epochs="auto")
    assert (trainer.progress.step, trainer.progress.epoch) == (50, 5)
    assert trainer.progress.total_steps == 50
    assert [epoch for epoch, _, _ in seen] == [epoch for epoch in range(5) for _ in range(10)]
    assert [index for _, _, batch in seen for index in batch] == [*range(100)] * 5


@pytest.mark.parametrize("options", [{"max_steps": 7}, {"n_epochs": 2}, {"max_time": 60.0}])
def test_a_limit_that_is_given_holds(options):
    options = {"n_epochs": "auto", **options}
    if "max_time" in options:
        options["max_steps"] = 3
    trainer, _ = train("numpy", Data(Stream(), batch_size=8), **options)
    steps = {"max_steps": options.get("max_steps"), "n_epochs": 6}
    assert trainer.progress.step == (steps["max_steps"] or steps["n_epochs"])


@pytest.mark.parametrize("name", ["stream", "loader", "batch sampler"])
def test_without_a_limit_of_its_own_a_stream_is_refused(name):
    """Case 42: the default number of epochs is no limit that anybody has set."""
    with pytest.raises(ConfigError, match=r"trainer\.n_epochs: is auto, which sets no end") as e:
        train("numpy", MAKERS[name](), n_epochs="auto")
    assert "trainer.max_steps=1000" in str(e.value)


def test_what_needs_a_length_says_so():
    with pytest.raises(ConfigError, match="needs the number of steps of the run") as caught:
        train("numpy", MAKERS["stream"](), schedule=Cosine())
    assert "set trainer.max_steps" in str(caught.value)
    with pytest.raises(ConfigError, match="'1ep', but the data has no length; give it in steps"):
        train("numpy", MAKERS["stream"](), max_steps=9, schedule=Cosine(warmup="1ep"))
    train("numpy", MAKERS["stream"](), max_steps=9, schedule=Cosine(warmup=2))


def test_epochs_without_length_are_evaluated_recorded_and_saved_at_their_ends(tmp_path):
    log, store = Records(), CheckpointStore(tmp_path, keep_last=None)
    data = Data(Stream(), samples(4), batch_size=5)
    periods = {"eval_every": "1ep", "save_every": "2ep"}
    trainer, _ = train("numpy", data, logger=log, checkpoint=store, n_epochs=4, **periods)
    assert trainer.progress.step == 20
    assert log.steps("eval") == [5, 10, 15, 20]
    assert [*log.of("train", "epoch_loss")] == [5, 10, 15, 20]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000010",
        "step-00000020",
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_goes_on_as_if_it_had_never_stopped(framework, name, accumulate):
    """Rows C1 and D7: weights to the last bit, whatever the step."""
    if framework != "numpy":
        pytest.importorskip(framework)
    options = {"accumulate": accumulate}
    straight, seen = train(framework, MAKERS[name](), **options)
    for stop in {1, 2, straight.progress.step // 3, straight.progress.step // 2 + 1}:
        first, before = train(framework, MAKERS[name](), max_steps=stop, n_epochs=None, **options)
        second, after = train(framework, MAKERS[name](), first.state(), **options)
        assert before + after == seen
        assert weights(second).tobytes() == weights(straight).tobytes()
        assert second.progress.samples == straight.progress.samples


def test_a_stream_in_order_gives_the_weights_of_a_set_in_order():
    streamed, _ = train("numpy", Data(lambda: (yield from rows(22)), batch_size=4))
    by_index, _ = train("numpy", Data(rows(22), batch_size=4, sampler=Sequential()))
    assert weights(streamed).tobytes() == weights(by_index).tobytes()


@pytest.mark.parametrize("name", MAKERS)
def test_an_evaluation_in_between_changes_nothing(name):
    plain, _ = train("numpy", MAKERS[name]())
    other = MAKERS[name]()
    other.eval = Data(None, {"dev": Stream(7), "held": OwnLoader(Batches(7))}).eval
    evaluated, _ = train("numpy", other, eval_every=2)
    assert weights(evaluated).tobytes() == weights(plain).tobytes()
    assert {"dev/loss", "held/loss"} <= {*evaluated.result.metrics}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 4}, "samples per step 4 (was 3)"),
        ({"seed": 1}, "seed 1 (was 0)"),
        ({"limit_train_batches": 5}, "samples per epoch 15 (was None)"),
    ],
)
def test_a_place_inside_an_epoch_that_is_cut_otherwise_is_refused(change, message):
    first, _ = train("numpy", Data(Stream(), batch_size=3), max_steps=2, n_epochs=None)
    data = Data(Stream(), batch_size=change.pop("batch_size", 3))
    with pytest.raises(ConfigError) as caught:
        train("numpy", data, first.state(), **change)
    assert "stands inside epoch 1, after 2 of its steps" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        (lambda: Data(Stream(), batch_size=11), lambda: Data(Stream(), batch_size=2), 11),
        (lambda: Data(Stream(), batch_size=11), lambda: Data(OwnLoader(Batches())), 6),
        (lambda: Data(OwnLoader(Batches())), lambda: Data(Stream(), batch_size=2), 11),
        (lambda: Data(Stream(), batch_size=2), lambda: Data(rows(22), batch_size=11), 2),
        (lambda: Data(rows(22), batch_size=11), lambda: Data(Stream(), batch_size=2), 11),
    ],
)
@pytest.mark.parametrize("is_saved_in_it", [True, False])
def test_at_the_end_of_an_epoch_data_may_be_cut_otherwise(before, after, steps, is_saved_in_it):
    """Also when the state is that of the last step, before the next epoch has begun."""
    states = []

    class Save(Callback):
        def step_end(self, context):
            states.append(trainer.state())

    trainer = make_trainer("numpy", data=before(), callbacks={"save": Save()}, n_epochs=1)
    trainer.fit()
    state = {**(states[-1] if is_saved_in_it else trainer.state()), "callbacks": {}}
    assert state["trainer"]["progress"]["epoch_step"] == (len(states) if is_saved_in_it else 0)
    second = make_trainer("numpy", data=after(), n_epochs=2)
    second.load_state(state)
    second.fit()
    assert second.progress.step == len(states) + steps
    assert second.progress.epoch == 2


def test_overfitting_trains_and_evaluates_the_same_samples():
    data = Data(Stream(), samples(4), batch_size=3)
    trainer, seen = train("numpy", data, overfit_batches=2, n_epochs=400, mlp={})
    assert len({str(batch) for _, _, batch in seen}) == 2
    assert trainer.result.metrics["loss"] < 0.2


def test_a_progress_without_length_is_shown():
    first, _ = train("numpy", MAKERS["stream"](), max_steps=2, n_epochs=None)
    assert str(first.progress) == "step 2, epoch 1 at 2 of unknown steps"
    done, _ = train("numpy", MAKERS["stream"](), n_epochs=1)
    assert str(done.progress) == "step 8, epoch 1 done"
