from __future__ import annotations

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.collective import SingleProcess
from expkit.core.errors import DataError, StepError
from expkit.core.evaluator import Evaluator
from expkit.core.failure import step_error
from expkit.data import Data
from expkit.losses import CrossEntropy
from tests.cases.parts import Scripted, make_driver, make_mlp, samples


class Losses:
    """A driver that gives scripted losses."""

    rank, world_size = 0, 1
    evaluates_together = False
    group = SingleProcess()

    def __init__(self, *outputs):
        self.outputs = list(outputs)
        self.needs = []

    def evaluate_step(self, batch, needs):
        self.needs.append(needs)
        outputs = self.outputs.pop(0)
        if isinstance(outputs, Exception):
            raise outputs
        return {name: np.asarray(value, np.float32) for name, value in outputs.items()}

    def all_reduce(self, array, op="sum"):
        return self.group.all_reduce(array, op)


class Batches:
    """Evaluation sets of given batches."""

    def __init__(self, **sets):
        self.sets = sets

    def eval_loaders(self, **options):
        self.options = options
        return {name.rstrip("_"): self for name in self.sets}

    def batches(self):
        return iter(next(iter(self.sets.values())))


def one(size, weights=None):
    weights = None if weights is None else np.asarray(weights, np.float32)
    return Batch({}, np.arange(size), weights)


def loss_of(driver, *batches):
    return Evaluator(driver=driver, data=Batches(_=batches)).run()


def test_the_loss_is_the_mean_over_samples():
    assert loss_of(Losses({"loss": [9, 11]}, {"loss": [9]}), one(2), one(1)) == {"loss": 29 / 3}


def test_samples_of_weight_0_do_not_count():
    driver = Losses({"loss": [1, 2, 100]})
    assert loss_of(driver, one(3, [1, 1, 0])) == {"loss": 1.5}


def test_losses_of_tokens_are_divided_by_tokens():
    driver = Losses({"loss": [6, 2], "loss_weight": [3, 1]}, {"loss": [4], "loss_weight": [2]})
    assert loss_of(driver, one(2), one(1)) == {"loss": 2.0}


def test_losses_are_summed_in_float64():
    driver = Losses(*[{"loss": [1e8, 1]} for _ in range(100)])
    assert loss_of(driver, *[one(2)] * 100) == {"loss": (1e8 + 1) / 2}


def test_a_model_without_a_loss_gives_the_metrics_alone():
    class Needs(Scripted):
        needs = frozenset({"output"})

    driver = Losses({"output": [1]})
    data = Batches(_=[one(1)])
    assert Evaluator(driver=driver, data=data, metrics=Needs(0.5)).run() == {"accuracy": 0.5}
    assert driver.needs == [frozenset({"output", "loss"})]


def test_a_set_without_a_batch_gives_no_loss():
    assert loss_of(Losses()) == {}


def test_an_error_names_the_samples_and_keeps_its_cause():
    with pytest.raises(
        StepError, match=r"evaluation on samples \[0, 1\] failed: KeyError: 'x'"
    ) as e:
        loss_of(Losses(KeyError("x")), one(2))
    assert isinstance(e.value.__cause__, KeyError)


def test_an_error_of_our_own_passes_as_it_is():
    with pytest.raises(DataError, match=r"^mine$"):
        loss_of(Losses(DataError("mine")), one(2))


def test_a_long_list_of_samples_is_cut():
    text = str(step_error("step 1", one(40), ValueError("no")))
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ...]" in text


def test_a_batch_of_one_brings_the_option_that_leaves_it_out():
    assert "data.drop_last=true" in str(step_error("step 1", one(1), ValueError("no")))
    assert "data.drop_last" not in str(step_error("step 1", one(2), ValueError("no")))


def test_limits_ranks_and_seed_reach_the_data():
    data = Batches(_=[])
    Evaluator(driver=Losses(), data=data, limit_batches=3, overfit_batches=2, seed=7)
    assert data.options == {
        "rank": 0,
        "world_size": 1,
        "limit_batches": 3,
        "overfit_batches": 2,
        "in_step": False,
        "seed": 7,
    }


def test_there_is_data_or_not():
    assert Evaluator(driver=Losses(), data=Batches(_=[])).has_data
    assert not Evaluator(driver=Losses(), data=Batches()).has_data


def test_a_model_of_its_own_may_be_bound_by_other_names():
    data = samples(4)
    data["image"] = data.pop("x")
    found = Evaluator(
        driver=make_driver("numpy"),
        data=Data(None, data),
        model=make_mlp("numpy"),
        loss=CrossEntropy(),
        binding=Binding(inputs={"image": "x"}),
    ).run()
    assert found["loss"] > 0
