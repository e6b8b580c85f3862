"""Real objects of torchmetrics: as they are, on any number of ranks."""

import math
import warnings

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.metrics import MetricSet

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchmetrics = pytest.importorskip("torchmetrics")

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(23, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, 23)
CLASSES = {"task": "multiclass", "num_classes": 3}


def several():
    """Metrics that share a state, one of them with a number for each class."""
    return torchmetrics.MetricCollection(
        {
            "f1": torchmetrics.F1Score(average=None, **CLASSES),
            "accuracy": torchmetrics.Accuracy(average="micro", **CLASSES),
        }
    )


MAKERS = {
    "counts": lambda: torchmetrics.Accuracy(average="micro", **CLASSES),
    "lists": lambda: torchmetrics.AUROC(**CLASSES),
    "no_reduction": torchmetrics.PearsonCorrCoef,
    "collection": several,
    "arithmetic": lambda: 2 * torchmetrics.Accuracy(average="micro", **CLASSES) - 1,
    "wrapper": lambda: torchmetrics.ClasswiseWrapper(torchmetrics.Recall(average=None, **CLASSES)),
}


def data(kind):
    if kind == "no_reduction":
        return SCORES[:, 0], SCORES[:, 1]
    return SCORES, LABELS


def evaluate(group, kind, ends):
    metrics = MetricSet({"m": MAKERS[kind]()})
    output, target = data(kind)
    metrics.reset()
    for batch in np.split(np.arange(len(target)), ends)[group.rank :: group.world_size]:
        metrics.update({"output": output[batch]}, {"y": target[batch]}, None)
    metrics.reduce(group)
    return metrics.compute()


@pytest.mark.parametrize("kind", MAKERS)
def test_over_ranks_they_are_those_of_one(on_ranks, kind):
    alone = evaluate(SingleProcess(), kind, [])
    assert all(map(math.isfinite, alone.values()))
    # three ranks of unequal shares, and two of which one has nothing
    for world_size, ends in ((3, [4, 9, 11, 20]), (2, [])):
        for numbers in on_ranks(world_size, lambda group, at=ends: evaluate(group, kind, at)):
            assert numbers == pytest.approx(alone, rel=1e-6)


def test_a_collection_reports_each_of_its_numbers():
    numbers = evaluate(SingleProcess(), "collection", [])
    assert set(numbers) == {"m/accuracy", "m/f1/0", "m/f1/1", "m/f1/2"}
    assert numbers["m/accuracy"] == pytest.approx((SCORES.argmax(1) == LABELS).mean())


@pytest.mark.parametrize("kind", ["counts", "collection", "arithmetic", "wrapper"])
def test_they_do_not_talk_to_other_ranks_by_themselves(kind, monkeypatch):
    """All ranks have all samples already: a second exchange would count each once for each rank."""
    monkeypatch.setattr("torchmetrics.metric.jit_distributed_available", lambda: True)

    def gathered(*args, **kwargs):
        raise AssertionError("torchmetrics has gathered by itself")

    monkeypatch.setattr("torchmetrics.metric.gather_all_tensors", gathered)
    evaluate(SingleProcess(), kind, [])
