"""Theme 5: evaluation and metrics in one process."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.core.collective import SingleProcess
from expkit.core.errors import StepError
from expkit.core.evaluator import Evaluator
from expkit.core.events import Callback
from expkit.data import Data, Sequential
from expkit.losses import CrossEntropy, MeanAbsoluteError
from expkit.metrics import Accuracy, MetricSet
from expkit.optimizers import SGD
from tests.cases.parts import (
    Scripted,
    gradients,
    make_constant,
    make_driver,
    make_mlp,
    make_trainer,
    samples,
    train_constant,
    weights,
)


class Count(Scripted):
    """How many samples an evaluation has seen."""

    def reset(self):
        self.seen = []

    def update(self, outputs, fields, weights):
        self.seen += fields["index"].tolist()
        assert weights is None

    def compute(self):
        return {"count": float(len(self.seen)), "distinct": float(len(set(self.seen)))}


def right_for(framework, indices, n):
    """Data on which the first model is right for exactly these samples."""
    data = samples(n)
    driver = make_driver(framework)
    driver.prepare(make_mlp(framework), None, CrossEntropy())
    batch_of = Data(data, data, eval_batch_size=n).eval_loaders()[""].batches()
    scores = driver.evaluate_step(next(iter(batch_of)), frozenset({"output"}))["output"]
    is_right = np.isin(np.arange(n), indices)
    return data | {"y": np.where(is_right, scores.argmax(1), (scores.argmax(1) + 1) % 3)}


@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 256])
def test_each_sample_counts_once(framework, batch_size):
    """Case 46, on one rank."""
    data = Data(None, right_for(framework, range(7), 10), eval_batch_size=batch_size)
    found = Evaluator(
        driver=make_driver(framework),
        data=data,
        model=make_mlp(framework),
        loss=CrossEntropy(),
        metrics=MetricSet({"accuracy": Accuracy()}),
    ).run()
    assert found["accuracy"] == 0.7


@pytest.mark.parametrize("n", [512, 97, 99, 33, 32, 1])
def test_counts_are_the_size_of_the_set(n):
    """Case 48, on one rank."""
    found = Evaluator(
        driver=make_driver("numpy"),
        data=Data(None, samples(n), eval_batch_size=16),
        model=make_mlp("numpy"),
        loss=CrossEntropy(),
        metrics=Count(),
    ).run()
    assert (found["count"], found["distinct"]) == (n, n)


def test_losses_are_means_over_samples_and_not_over_batches(framework):
    """Case 50: batches with the means 10 and 9 and with 2 samples and 1."""
    data = gradients(9.0, 11.0, 9.0)
    both = Data(data, data, batch_size=2, eval_batch_size=2, sampler=Sequential())
    trainer = train_constant(framework, both, optimizer=SGD(lr=1e-12), log_every=2)
    assert trainer._logger.of("train", "loss")[2] == pytest.approx(29 / 3, abs=1e-6)
    assert trainer._logger.of("train", "epoch_loss")[2] == pytest.approx(29 / 3, abs=1e-6)
    assert trainer._logger.of("eval", "loss")[2] == pytest.approx(29 / 3, abs=1e-6)


def test_training_mode_comes_back_after_each_evaluation(framework):
    """Case 56."""
    modes, dropped = [], []

    class Look(Callback):
        def batch_start(self, context, batch, indices):
            modes.append(context.driver.unwrap().training)
            self.plain = context.driver.evaluate_step(batch, frozenset({"output"}))["output"]

        def loss_start(self, context, outputs, batch):
            output = outputs["output"]
            output = output.detach().numpy() if hasattr(output, "detach") else output
            dropped.append(not np.allclose(output, self.plain))

    trainer = make_trainer(
        framework,
        eval_every=2,
        max_steps=6,
        eval_on=4,
        mlp={"dropout": 0.5},
        callbacks=[Look()],
    )
    trainer.fit()
    assert modes == [True] * 6
    assert dropped == [True] * 6


def test_a_part_that_is_not_trained_stays_in_evaluation_mode(framework):
    """A user's frozen layer keeps the mode that it was given, and others come back to theirs."""
    if framework == "numpy":
        pytest.skip("its models have one mode as a whole")
    modes = []

    class Freeze(Callback):
        def fit_start(self, context):
            next(iter(context.driver.unwrap().children())).eval()

        def batch_start(self, context, batch, indices):
            model = context.driver.unwrap()
            modes.append((model.training, next(iter(model.children())).training))

    make_trainer(framework, eval_every=1, max_steps=3, eval_on=4, callbacks=[Freeze()]).fit()
    assert modes == [(True, False)] * 3


def test_the_mode_comes_back_from_an_evaluation_that_fails(framework):
    driver = make_driver(framework)
    driver.prepare(make_mlp(framework), None, CrossEntropy())
    model = driver.unwrap()
    assert model.training
    data = Data(None, {"x": np.zeros((4, 99), np.float32), "y": np.zeros(4, np.int64)})
    with pytest.raises(StepError, match="evaluation on samples"):
        Evaluator(driver=driver, data=data).run()
    assert model.training


def test_an_evaluation_in_between_changes_nothing_of_the_training(framework):
    results = []
    for eval_every in (None, 1):
        trainer = make_trainer(
            framework,
            eval_every=eval_every,
            eval_on=8,
            mlp={"dropout": 0.5},
            eval_at_start=bool(eval_every),
        )
        trainer.fit()
        results.append(weights(trainer))
    np.testing.assert_array_equal(*results)


def test_several_sets_have_their_names_in_the_metrics(framework):
    sets = {"dev": samples(5, 1), "test": samples(7, 2)}
    data = Data(samples(20), sets, batch_size=4)
    trainer = make_trainer(
        framework, data=data, metrics=MetricSet({"accuracy": Accuracy()}), monitor="dev/accuracy"
    )
    result = trainer.fit()
    assert list(result.metrics) == ["dev/loss", "dev/accuracy", "test/loss", "test/accuracy"]
    assert result.objective == result.best_eval["dev/accuracy"]


class Endless:
    """Batches of which the model predicts each label right; one label in the last is wrong."""

    rank, world_size, evaluates_together = 0, 1, False
    group = SingleProcess()

    def __init__(self, num_batches, size):
        self.num_batches, self.size = num_batches, size
        self.right = np.ones(size, np.int64)

    def eval_loaders(self, **options):
        return {"": self}

    def batches(self):
        indices = np.arange(self.size)
        for number in range(self.num_batches):
            true = self.right.copy()
            true[0] = number + 1 < self.num_batches
            yield Batch({"y": true}, indices)

    def evaluate_step(self, batch, needs):
        return {"output": self.right, "loss": self.right}

    def all_reduce(self, array, op="sum"):
        return self.group.all_reduce(array, op)


def test_counts_are_exact_where_float32_has_no_odd_numbers_left():
    both = Endless(17, 2**20)
    n = 17 * 2**20
    assert n > 2**24
    found = Evaluator(driver=both, data=both, metrics=MetricSet({"accuracy": Accuracy()})).run()
    assert found == {"loss": 1.0, "accuracy": (n - 1) / n}


def test_a_model_is_evaluated_without_training(framework):
    found = Evaluator(
        driver=make_driver(framework),
        data=Data(None, gradients(1.0, 2.0, 6.0)),
        model=make_constant(framework),
        loss=MeanAbsoluteError(),
    ).run()
    assert found == {"loss": 3.0}
