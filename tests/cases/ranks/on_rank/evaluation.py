"""Themes 5 and 12 on ranks: each sample once, sums and never means of means."""

from __future__ import annotations

import importlib

import numpy as np

from expkit.core.evaluator import Evaluator
from expkit.core.events import Callback
from expkit.core.metric import Metric
from expkit.data import Data
from expkit.losses import CrossEntropy, MeanAbsoluteError
from expkit.metrics import Accuracy, MetricSet, PrecisionRecallF1
from expkit.optimizers import SGD
from tests.cases.parts import Scripted, gradients, make_mlp, samples
from tests.cases.ranks.on_rank.parts import (
    constant,
    driver_of,
    in_order,
    make_echo,
    outcome,
    trainer_of,
)


class Count(Scripted):
    """How many samples all ranks together have seen, and how many different ones."""

    def reset(self):
        self.seen = []

    def update(self, outputs, fields, weights):
        assert weights is None
        self.seen += fields["index"].tolist()

    def reduce(self, group):
        self.seen = [index for part in group.all_gather(self.seen) for index in part]

    def compute(self):
        return {"count": float(len(self.seen)), "distinct": float(len(set(self.seen)))}


class LargestError(Metric):
    """The largest absolute difference of output and target."""

    reduce_ops = {"largest": "max"}  # noqa: RUF012 - as a user writes it

    def reset(self):
        self.state = {"largest": np.zeros(1)}

    def update(self, outputs, fields, weights):
        error = np.abs(outputs["output"] - fields["y"]).max()
        self.state["largest"] = np.maximum(self.state["largest"], error)

    def compute(self):
        return {"": self.state["largest"][0]}


def evaluated(framework, model, data, metrics, loss=None, alone=False):
    return Evaluator(
        driver=driver_of(framework, alone),
        data=data,
        model=model,
        loss=loss or CrossEntropy(),
        metrics=metrics,
    ).run()


def labels(predicted, true):
    """Data on which `make_echo` predicts these labels."""
    scores = np.eye(3, dtype=np.float32)[np.asarray(predicted)]
    return {"scores": scores, "y": np.asarray(true), "index": np.arange(len(scores))}


def accuracy_and_count(framework, batch_size, alone=False):
    """Ten samples of which 0 to 6 are predicted right."""
    data = Data(
        None, labels([1] * 7 + [2] * 3, [1] * 10), batch_size=batch_size, eval_batch_size=batch_size
    )
    model = make_echo(framework)
    found = evaluated(framework, model, data, MetricSet({"accuracy": Accuracy()}), alone=alone)
    return found["accuracy"], evaluated(framework, model, data, Count(), alone=alone)["count"]


def counts(framework, sizes):
    found = []
    for n in sizes:
        data = Data(None, samples(n), eval_batch_size=16)
        numbers = evaluated(framework, make_mlp(framework), data, Count())
        found.append([numbers["count"], numbers["distinct"]])
    return found


def several_sets(framework, alone):
    """Sets of which the ranks have equally many samples, or not, or some of them none."""
    sets = {
        "dev": labels([1] * 7 + [2] * 3, [1] * 10),
        "test": labels([1, 1, 2], [1] * 3),
        "one": labels([2], [2]),
    }
    data = Data(None, sets, eval_batch_size=2)
    metrics = MetricSet({"accuracy": Accuracy()})
    return evaluated(framework, make_echo(framework), data, metrics, alone=alone)


def losses(framework):
    """Two windows with the means 10 and 9, with 2 samples and 1."""
    data = gradients(9.0, 11.0, 9.0)
    both = in_order(data, eval=data, batch_size=1, eval_batch_size=1)
    trainer = constant(framework, both, optimizer=SGD(lr=1e-12), log_every=2)
    trainer.fit()
    records = trainer._logger
    return (
        records.of("train", "loss")[2],
        records.of("train", "epoch_loss")[2],
        records.of("eval", "loss")[2],
    )


def not_a_mean(framework):
    """Rank 0 has one true positive; rank 1 has one, and three false ones."""
    data = Data(None, labels([1, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 0, 0, 0]))
    metrics = MetricSet({"f1": PrecisionRecallF1(average="none", num_classes=2)})
    precision = evaluated(framework, make_echo(framework), data, metrics)["f1/precision/1"]
    errors = Data(None, {"scores": np.float32([0, 2, 9, 1]), "y": np.zeros(4, np.float32)})
    largest = evaluated(
        framework,
        make_echo(framework),
        errors,
        MetricSet({"largest": LargestError()}),
        MeanAbsoluteError(),
    )["largest"]
    return precision, largest


def read_on_main(framework):
    """A callback of rank 0 alone looks at the last accuracy."""
    seen = []

    class Look(Callback):
        run_on = "main"

        def eval_end(self, context, metrics):
            seen.append([metrics["accuracy"], context.eval_metrics["accuracy"]])

        def step_end(self, context):
            seen.append(context.eval_metrics.get("accuracy"))

    trainer = trainer_of(
        framework,
        model=make_echo_with_weight(framework),
        data=Data(labels([1] * 10, [1] * 10), labels([1] * 7 + [2] * 3, [1] * 10), batch_size=2),
        metrics=MetricSet({"accuracy": Accuracy()}),
        callbacks=[Look()],
        n_epochs=1,
        eval_every=2,
    )
    trainer.fit()
    return seen, outcome(trainer) | {"seconds": 0}


def make_echo_with_weight(framework):
    """The echo, times a weight that stays positive: its predictions are the scores'."""
    module = importlib.import_module(framework)
    base = module.nn.Module if framework == "torch" else module.nn.Layer

    class Scaled(base):
        def __init__(self):
            super().__init__()
            if framework == "torch":
                self.w = module.nn.Parameter(module.ones(1))
            else:
                one = module.nn.initializer.Constant(1.0)
                self.w = self.create_parameter([1], default_initializer=one)

        def forward(self, scores):
            return scores * self.w

    return Scaled()


def modes(framework):
    """Whether the model is in training at each step, with an evaluation after every second."""
    training, dropped = [], []

    class Look(Callback):
        def batch_start(self, context, batch, indices):
            training.append(bool(context.driver.unwrap().training))
            self.plain = context.driver.evaluate_step(batch, frozenset({"output"}))["output"]

        def loss_start(self, context, outputs, batch):
            output = outputs["output"].detach().numpy()
            dropped.append(not np.allclose(output, self.plain))

    trainer_of(
        framework,
        n=48,
        eval_every=2,
        max_steps=6,
        eval_on=4,
        mlp={"dropout": 0.5},
        callbacks=[Look()],
    ).fit()
    return training, dropped


class Sequences:
    """One sequence of 7 tokens of which 6 are right, and one of 5 of which 3 are."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        length, wrong = [(7, 1), (5, 2)][index]
        y = np.ones(length, np.int64)
        predicted = np.where(np.arange(length) < wrong, 2, y)
        return {"scores": 50 * np.eye(3, dtype=np.float32)[predicted], "y": y}


def padded(samples):
    """To 9 places on one rank and to 6 on the other: each to its own multiple."""
    longest = max(len(sample["y"]) for sample in samples)
    length = 3 * (-(-longest // 3))
    scores = np.zeros((len(samples), length, 3), np.float32)
    y = np.zeros((len(samples), length), np.int64)
    for row, sample in enumerate(samples):
        scores[row, : len(sample["y"])] = sample["scores"]
        y[row, : len(sample["y"])] = sample["y"]
    return {"scores": scores, "y": y}


def padding(framework):
    data = Data(None, Sequences(), eval_batch_size=1, collate=padded)
    metrics = MetricSet({"accuracy": Accuracy(ignore_index=0)})
    found = evaluated(framework, make_echo(framework), data, metrics, CrossEntropy(ignore_index=0))
    return found["accuracy"], found["loss"]
