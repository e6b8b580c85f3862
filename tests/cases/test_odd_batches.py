"""Theme 12: batches of odd shape, padding, and runs without a step."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from expkit.core.batch import Batch, map_leaves
from expkit.core.evaluator import Evaluator
from expkit.data import Data
from expkit.losses import CrossEntropy
from expkit.metrics import Accuracy, MetricSet
from tests.cases.parts import make_driver, make_trainer, weights


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Frozen:
    value: Any
    name: str


def nested():
    array = np.ones((2, 3), np.float32)
    return {
        "a": {"img": array, "id": ["x", "y"]},
        "m": None,
        "p": Pair(array, array),
        "d": Frozen(array, "n"),
    }


def test_leaves_are_found_at_every_depth_and_containers_stay_what_they_are():
    """Case 105."""
    moved = map_leaves(nested(), lambda leaf: leaf + 1 if isinstance(leaf, np.ndarray) else leaf)
    assert (moved["a"]["img"] == 2).all()
    assert moved["a"]["id"] == ["x", "y"]
    assert moved["m"] is None
    assert isinstance(moved["p"], Pair)
    assert (moved["p"].right == 2).all()
    assert isinstance(moved["d"], Frozen)
    assert (moved["d"].value == 2).all()
    assert moved["d"].name == "n"


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_tensors_reach_the_model_at_every_depth_and_all_else_as_it_is(framework):
    """Case 105, on the drivers."""
    module = pytest.importorskip(framework)
    base = module.nn.Module if framework == "torch" else module.nn.Layer
    tensor = module.Tensor
    seen = {}

    class Model(base):
        def forward(self, a, m, p, d):
            seen.update(a=a, m=m, p=p, d=d)
            return a["img"]

    driver = make_driver(framework)
    driver.prepare(Model(), None, None)
    batch = Batch(nested(), np.arange(2))
    driver.evaluate_step(batch, frozenset({"output"}))
    assert isinstance(seen["a"]["img"], tensor)
    assert seen["a"]["id"] == ["x", "y"]
    assert seen["m"] is None
    assert isinstance(seen["p"], Pair)
    assert isinstance(seen["p"].left, tensor)
    assert isinstance(seen["d"], Frozen)
    assert isinstance(seen["d"].value, tensor)
    assert seen["d"].name == "n"


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_padding_counts_neither_in_the_loss_nor_in_the_metric(framework):
    """Case 107, on one rank: 6 of 7 and 3 of 5 tokens are right."""
    module = pytest.importorskip(framework)
    base = module.nn.Module if framework == "torch" else module.nn.Layer

    class Echo(base):
        def forward(self, scores):
            return scores

    y = np.ones((2, 7), np.int64)
    y[1, 5:] = 0
    predicted = y.copy()
    predicted[0, :1] = 2
    predicted[1, :2] = 2
    scores = 50 * np.eye(3, dtype=np.float32)[predicted]
    found = Evaluator(
        driver=make_driver(framework),
        data=Data(None, {"scores": scores, "y": y}, eval_batch_size=1),
        model=Echo(),
        loss=CrossEntropy(ignore_index=0),
        metrics=MetricSet({"accuracy": Accuracy(ignore_index=0)}),
    ).run()
    assert found["accuracy"] == 0.75
    assert found["loss"] == pytest.approx(50 * 3 / 12)


def test_no_epoch_is_one_evaluation_and_no_update(framework, caplog):
    """Case 109."""
    caplog.set_level(logging.INFO, "expkit")
    for eval_at_start in (False, True):
        trainer = make_trainer(
            framework, n_epochs=0, eval_on=4, monitor="-loss", eval_at_start=eval_at_start
        )
        before = weights(trainer)
        result = trainer.fit()
        np.testing.assert_array_equal(before, weights(trainer))
        assert (result.status, result.steps, result.best_eval) == ("completed", 0, {})
        assert trainer._logger.steps("eval") == [0]
        assert result.metrics["loss"] > 0
    assert caplog.text.count("nothing to train") == 2


@pytest.mark.parametrize("limit", [{"max_steps": 0}, {"max_time": 0}])
def test_other_limits_of_0_do_nothing_either(limit):
    result = make_trainer(**limit).fit()
    assert (result.status, result.steps) == ("completed", 0)
