from types import MappingProxyType

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.core.errors import ConfigError, DataError
from expkit.core.metric import Metric
from expkit.metrics import (
    R2,
    Accuracy,
    ConfusionMatrix,
    MeanAbsoluteError,
    MeanLoss,
    MetricSet,
    PrecisionRecallF1,
    RootMeanSquaredError,
)


class LargestError(Metric):
    """A metric of a user's own."""

    reduce_ops = MappingProxyType({"largest": "max"})

    def reset(self):
        self.state = {"largest": np.zeros(1), "samples": np.zeros(1, np.int64)}

    def update(self, outputs, fields, weights):
        errors = np.abs(outputs["output"] - fields["y"])
        self.state["largest"] = np.maximum(self.state["largest"], errors.max())
        self.state["samples"] += len(errors)

    def compute(self):
        return {"": float(self.state["largest"][0]), "samples": float(self.state["samples"][0])}


class Odd(Metric):
    """A metric whose state is given."""

    def __init__(self, state, reduce_ops=None):
        self.given = state
        self.reduce_ops = reduce_ops or {}

    def reset(self):
        self.state = dict(self.given)

    def update(self, outputs, fields, weights):
        pass

    def compute(self):
        return {"a": 1.0}


def reset(metrics):
    made = MetricSet(metrics)
    made.reset()
    return made


def test_needs_are_those_of_all_metrics():
    metrics = MetricSet(
        {"accuracy": Accuracy(output="logits"), "mae": MeanAbsoluteError(), "loss": MeanLoss()}
    )
    assert metrics.needs == {"logits", "output", "loss"}
    assert MetricSet({}).needs == frozenset()


def test_names_are_those_of_the_config_with_the_parts_behind():
    metrics = reset({"top": Accuracy(), "f1": PrecisionRecallF1()})
    metrics.update({"output": np.eye(2)}, {"y": np.arange(2)}, None)
    metrics.reduce(SingleProcess())
    assert metrics.compute() == {"top": 1.0, "f1": 1.0, "f1/precision": 1.0, "f1/recall": 1.0}


def test_reset_forgets_all():
    metrics = reset({"accuracy": Accuracy(), "r2": R2()})
    metrics.update({"output": np.ones(2)}, {"y": np.zeros(2)}, None)
    metrics.reset()
    assert all(np.isnan(value) for value in metrics.compute().values())


def test_two_metrics_that_report_one_name_are_refused():
    metrics = reset({"f1": PrecisionRecallF1(), "f1/recall": Accuracy()})
    with pytest.raises(ConfigError, match="two metrics report 'f1/recall'"):
        metrics.compute()


def test_what_is_no_metric_is_refused():
    with pytest.raises(
        ConfigError, match=r"3.* is no metric; allowed: an object with reset, update"
    ):
        MetricSet({"x": 3})
    with pytest.raises(ConfigError, match="the class Accuracy is no metric"):
        MetricSet({"x": Accuracy})


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_together_report_what_one_rank_would(on_ranks, feed, world_size):
    rng = np.random.default_rng(world_size)
    output, target = rng.normal(size=10), rng.normal(size=10)

    def make():
        return reset(
            {
                "mae": MeanAbsoluteError(),
                "rmse": RootMeanSquaredError(),
                "r2": R2(),
                "max": LargestError(),
            }
        )

    def run(group):
        metrics = make()
        mine = slice(group.rank, None, group.world_size)
        metrics.update({"output": output[mine]}, {"y": target[mine]}, None)
        metrics.reduce(group)
        return metrics.compute()

    alone = make()
    alone.update({"output": output}, {"y": target}, None)
    for result in on_ranks(world_size, run):
        assert result == {
            name: pytest.approx(value, rel=1e-12) for name, value in alone.compute().items()
        }
        assert result["max/samples"] == 10


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_accuracy_over_ranks_counts_each_sample_once(on_ranks, world_size):
    guess, true = np.array([0] * 7 + [1] * 3), np.zeros(10, np.int64)
    order = (
        np.arange(-(-10 // world_size) * world_size) % 10
    )  # the last round is filled up with repeats
    weights = (np.arange(len(order)) < 10).astype(np.float32)

    def run(group):
        metrics = reset({"accuracy": Accuracy()})
        mine = slice(group.rank, None, group.world_size)
        metrics.update({"output": guess[order[mine]]}, {"y": true[order[mine]]}, weights[mine])
        metrics.reduce(group)
        return metrics.compute()["accuracy"], metrics.metrics["accuracy"].state["sums"][1]

    assert on_ranks(world_size, run) == [(0.7, 10.0)] * world_size


def test_precision_over_ranks_is_no_mean_and_the_largest_no_sum(on_ranks):
    # rank 0: one true positive; rank 1: one true and three false positives
    guesses, truths = (
        [np.array([1]), np.array([1, 1, 1, 1])],
        [np.array([1]), np.array([1, 0, 0, 0])],
    )
    errors = [2.0, 9.0]

    def run(group):
        metrics = reset({"f1": PrecisionRecallF1("none")})
        metrics.update({"output": guesses[group.rank]}, {"y": truths[group.rank]}, None)
        largest = reset({"largest": LargestError()})
        largest.update({"output": np.array([errors[group.rank]])}, {"y": np.zeros(1)}, None)
        for each in (metrics, largest):
            each.reduce(group)
        return metrics.compute()["f1/precision/1"], largest.compute()["largest"]

    assert on_ranks(2, run) == [(0.4, 9.0)] * 2


def test_states_that_grew_differently_on_each_rank_add_up(on_ranks):
    labels = [np.array([0, 1]), np.array([4, 4, 0]), np.array([], np.int64)]

    def run(group):
        metrics = reset({"confusion": ConfusionMatrix(), "f1": PrecisionRecallF1("micro")})
        metrics.update({"output": labels[group.rank]}, {"y": labels[group.rank]}, None)
        metrics.reduce(group)
        return metrics.metrics["confusion"].matrix.tolist(), metrics.compute()["f1"]

    for matrix, f1 in on_ranks(3, run):
        assert matrix == np.diag([2, 1, 0, 0, 2]).tolist()
        assert f1 == 1.0


def test_arrays_of_one_type_and_operation_travel_together(on_ranks):
    def run(group):
        metrics = reset(
            {
                "a": Accuracy(),
                "mae": MeanAbsoluteError(),
                "f1": PrecisionRecallF1(),
                "max": LargestError(),
            }
        )
        metrics.reduce(group)
        return group.num_reductions

    assert on_ranks(2, run) == [3, 3]  # float64 sums, float64 maxima, int64 sums


def test_a_state_of_another_type_is_refused():
    metrics = reset({"odd": Odd({"x": np.zeros(1, np.float32)})})
    with pytest.raises(
        ConfigError, match=r"metrics.odd: state 'x' is float32 on rank 0; allowed: float64 or int64"
    ):
        metrics.reduce(SingleProcess())


@pytest.mark.parametrize(
    ("states", "ops", "message"),
    [
        ([{"x": np.zeros(1)}, {}], {}, "state 'x' is on rank 0 or rank 1 only"),
        (
            [{"x": np.zeros(1)}, {"x": np.zeros((1, 1))}],
            {},
            r"shape \(1, 1\) on rank 1 and \(1,\) on rank 0",
        ),
        (
            [{"x": np.zeros(1)}, {"x": np.zeros(2)}],
            {"x": "max"},
            r"shape \(2,\) on rank 1 and \(1,\) on rank 0",
        ),
    ],
)
def test_states_that_do_not_fit_together_are_refused(on_ranks, states, ops, message):
    def run(group):
        metrics = reset({"odd": Odd(states[group.rank], ops)})
        with pytest.raises(DataError, match=message):
            metrics.reduce(group)
        return True

    # Each rank names the fault; none waits for another.
    assert on_ranks(2, run) == [True, True]


def test_a_metric_of_the_users_own_needs_no_more_than_three_methods():
    metrics = reset({"largest": LargestError()})
    metrics.update({"output": np.array([1.0, 5.0])}, {"y": np.array([0.0, 1.0])}, None)
    metrics.reduce(SingleProcess())
    assert metrics.compute() == {"largest": 4.0, "largest/samples": 2.0}
