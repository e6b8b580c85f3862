import importlib

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.core.errors import ConfigError, DataError
from expkit.metrics import ForeignMetric, MetricSet

SCORES = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]], np.float32)
LABELS = np.array([0, 1, 1, 1])


class Share:
    """A metric of nobody's library."""

    def reset(self):
        self.right = self.seen = 0

    def update(self, predictions, targets):
        self.kind = type(predictions)
        self.right += int((predictions.argmax(-1) == targets).sum())
        self.seen += len(targets)

    def compute(self):
        return self.right / self.seen


class Several(Share):
    def compute(self):
        return {"right": self.right, "seen": self.seen}


class EachClass(Share):
    def compute(self):
        return np.array([0.25, 0.75])


def run(metric, weights=None):
    metrics = MetricSet({"m": metric})
    metrics.reset()
    metrics.update({"output": SCORES}, {"y": LABELS}, weights)
    metrics.reduce(SingleProcess())
    return metrics.compute()


def test_an_object_with_update_compute_and_reset_is_a_metric():
    metric = Share()
    assert run(metric) == {"m": 0.75}
    assert metric.kind is np.ndarray


def test_several_numbers_keep_their_names_or_positions():
    assert run(Several()) == {"m/right": 3.0, "m/seen": 4.0}
    assert run(EachClass()) == {"m/0": 0.25, "m/1": 0.75}


def test_reset_reaches_the_object():
    metric = Share()
    run(metric)
    assert run(metric) == {"m": 0.75}
    assert metric.seen == 4


def test_padding_is_taken_away_and_other_weights_are_refused():
    assert run(Share(), np.array([1, 1, 0, 1], np.float32)) == {"m": 1.0}
    with pytest.raises(
        DataError, match=r"Share is a metric of another library and knows no weights; got 0.5"
    ):
        run(Share(), np.array([1, 0.5, 1, 1], np.float32))


def test_a_batch_of_padding_alone_does_not_reach_the_object():
    metric = Share()
    metrics = MetricSet({"m": metric})
    metrics.reset()
    metrics.update({"output": SCORES}, {"y": LABELS}, np.zeros(4, np.float32))
    assert metric.seen == 0


def test_other_names_of_output_and_target_are_given_to_the_wrapper():
    metrics = MetricSet({"m": ForeignMetric(Share(), output="logits", target="label")})
    assert metrics.needs == {"logits"}
    metrics.update({"logits": SCORES}, {"label": LABELS}, None)
    assert metrics.compute() == {"m": 0.75}


class Order(Share):
    """Tells what it was handed, and in which order."""

    def reset(self):
        self.batches = []

    def update(self, predictions, targets):
        self.batches.append(targets.tolist())

    def compute(self):
        return float(len(self.batches))


SHARES = [[[0, 1], [2]], [[3], [4, 5], [6]], []]
"""The batches of three ranks."""


def on_rank(group, make, output=SCORES, target=LABELS, shares=SHARES, joined=False):
    """A rank's numbers, and its metric, after an evaluation of its share."""
    metrics = MetricSet({"m": make()})
    if joined:
        metrics.join(group)
    metrics.reset()
    for batch in shares[group.rank]:
        metrics.update({"output": output[batch]}, {"y": target[batch]}, None)
    metrics.reduce(group)
    return metrics.compute(), metrics.metrics["m"]


@pytest.mark.parametrize("joined", [False, True])
def test_each_rank_hands_over_the_batches_of_all_in_one_order(on_ranks, joined):
    def run(group):
        numbers, metric = on_rank(group, Order, np.zeros((7, 2)), np.arange(7), joined=joined)
        return numbers, metric._metric.batches

    batches = [[0, 1], [3], [2], [4, 5], [6]]
    assert on_ranks(3, run) == [({"m": 5.0}, batches)] * 3


def test_in_one_process_nothing_is_kept():
    metric = Share()
    metrics = MetricSet({"m": metric})
    metrics.join(SingleProcess())
    metrics.reset()
    metrics.update({"output": SCORES}, {"y": LABELS}, None)
    assert metric.seen == 4
    metrics.reduce(SingleProcess())
    assert metrics.compute() == {"m": 0.75}
    assert metric.seen == 4


def test_reset_forgets_what_was_not_handed_over_yet():
    metrics = MetricSet({"m": Share()})
    metrics.update({"output": SCORES}, {"y": 1 - LABELS}, None)
    metrics.reset()
    metrics.update({"output": SCORES}, {"y": LABELS}, None)
    assert metrics.compute() == {"m": 0.75}


def test_what_the_object_refuses_is_told_with_the_shapes(on_ranks):
    class Picky(Share):
        def update(self, predictions, targets):
            raise ValueError("no")

    def run(group):
        with pytest.raises(
            DataError, match=r"Picky failed on a batch of float32 \(2, 2\) and int64"
        ):
            on_rank(group, Picky, shares=[[[0, 1]], []])
        return True

    assert on_ranks(2, run) == [True, True]


def test_numbers_within_numbers_keep_the_path_to_them():
    class Nested(Share):
        def compute(self):
            return {"a": np.array([1, 2]), "b": (3, {"c": 4})}

    assert run(Nested()) == {"m/a/0": 1, "m/a/1": 2, "m/b/0": 3, "m/b/1/c": 4}


def test_an_object_without_the_methods_is_refused_with_what_is_wanted():
    with pytest.raises(
        ConfigError,
        match=r"object.* is no metric; allowed: an object with reset, update, and compute",
    ):
        MetricSet({"m": object()})


def test_an_object_built_on_torch_gets_tensors():
    torch = pytest.importorskip("torch")

    class TorchShare(torch.nn.Module):
        def reset(self):
            self.right, self.seen = torch.tensor(0), 0

        def update(self, predictions, targets):
            self.right += (predictions.argmax(-1) == targets).sum()
            self.seen += len(targets)

        def compute(self):
            return self.right / self.seen

    assert run(TorchShare()) == {"m": 0.75}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("Accuracy", {}, {"m": 0.75}),
        ("Accuracy", {"topk": (1, 2)}, {"m/acc_top1": 0.75, "m/acc_top2": 1.0}),
        ("Auc", {}, {"m": 1.0}),
    ],
)
def test_metrics_of_paddle_are_taken(name, options, expected):
    pytest.importorskip("paddle")
    kind = getattr(importlib.import_module("paddle.metric"), name)
    assert run(kind(**options)) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "options"), [("Accuracy", {"topk": (1, 2)}), ("Auc", {})])
def test_metrics_of_paddle_over_ranks_are_those_of_one(on_ranks, name, options):
    pytest.importorskip("paddle")
    kind = getattr(importlib.import_module("paddle.metric"), name)
    rng = np.random.default_rng(0)
    scores = rng.random((7, 2)).astype(np.float32)
    labels = rng.integers(0, 2, 7)
    alone, _ = on_rank(SingleProcess(), lambda: kind(**options), scores, labels, [[list(range(7))]])
    ranks = on_ranks(3, lambda group: on_rank(group, lambda: kind(**options), scores, labels)[0])
    assert ranks == [alone] * 3
