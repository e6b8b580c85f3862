"""However the samples are dealt to ranks and batches, the numbers are the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.collective import SingleProcess
from expkit.metrics import (
    AUROC,
    R2,
    Accuracy,
    ConfusionMatrix,
    MeanAbsoluteError,
    MeanLoss,
    MeanSquaredError,
    MetricSet,
    Perplexity,
    PrecisionRecallF1,
    RootMeanSquaredError,
    SpanF1,
    TopKAccuracy,
)

QUICK = settings(max_examples=25, deadline=None)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class Mean:
    """An object of nobody's library."""

    def reset(self):
        self.right = self.seen = 0

    def update(self, predictions, targets):
        self.right += int((predictions.argmax(-1) == targets).sum())
        self.seen += len(targets)

    def compute(self):
        return self.right / self.seen if self.seen else float("nan")


@st.composite
def dealt(draw):
    """A generator of numbers, the batches of each rank, and which samples are padding."""
    n, world_size = draw(st.integers(1, 24)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    owner = rng.integers(0, world_size, n)
    ranks = []
    for rank in range(world_size):
        own = rng.permutation(np.flatnonzero(owner == rank))
        ranks.append(np.split(own, np.sort(rng.integers(0, len(own) + 1, 2))))
    weights = (rng.random(n) < 0.8).astype(np.float32) if draw(st.booleans()) else None
    return rng, n, ranks, weights


def evaluate(group, make, batches, outputs, fields, weights):
    metrics = MetricSet(make())
    metrics.reset()
    for batch in batches:
        metrics.update(
            {name: array[batch] for name, array in outputs.items()},
            {name: array[batch] for name, array in fields.items()},
            None if weights is None else weights[batch],
        )
    metrics.reduce(group)
    return metrics.compute()


def evaluate_both(on_ranks, make, ranks, *data):
    """Numbers of one process with one batch, and of each rank."""
    everything = [np.sort(np.concatenate([batch for rank in ranks for batch in rank]))]
    alone = evaluate(SingleProcess(), make, everything, *data)
    return alone, on_ranks(
        len(ranks), lambda group: evaluate(group, make, ranks[group.rank], *data)
    )


@QUICK
@given(dealt())
def test_counts_of_classes_are_the_same_to_the_last_digit(on_ranks, case):
    rng, n, ranks, weights = case
    outputs = {"output": rng.normal(size=(n, 4)).astype(np.float32).round(1)}
    fields = {"y": rng.integers(0, 4, n)}

    def make():
        return {
            "accuracy": Accuracy(),
            "top2": TopKAccuracy(2),
            **{name: PrecisionRecallF1(name) for name in ("macro", "micro", "weighted")},
            "each": PrecisionRecallF1("none", num_classes=4),
            "confusion": ConfusionMatrix(num_classes=4),
            "auroc": AUROC(),
            "auroc_each": AUROC("none"),
            "foreign": Mean(),
        }

    alone, together = evaluate_both(on_ranks, make, ranks, outputs, fields, weights)
    for numbers in together:
        np.testing.assert_equal(numbers, alone)


@QUICK
@given(dealt())
def test_counts_of_tokens_and_spans_are_the_same_whatever_the_padding(on_ranks, case):
    rng, n, ranks, weights = case
    lengths = rng.integers(1, 9, n)
    true, guess = rng.integers(0, 5, (2, n, 8))
    true[np.arange(8) >= lengths[:, None]] = -1

    class Shorter(MetricSet):
        """Pads to the longest sequence of a batch, as a collate does."""

        def update(self, outputs, fields, weights):
            longest = (fields["y"] >= 0).sum(axis=1).max(initial=0)
            super().update(
                {"output": outputs["output"][:, :longest]}, {"y": fields["y"][:, :longest]}, weights
            )

    def run(group, batches):
        metrics = Shorter(
            {
                "accuracy": Accuracy(ignore_index=-1),
                "f1": SpanF1(TAGS, ignore_index=-1, per_type=True),
            }
        )
        metrics.reset()
        for batch in batches:
            part = None if weights is None else weights[batch]
            metrics.update({"output": guess[batch]}, {"y": true[batch]}, part)
        metrics.reduce(group)
        return metrics.compute()

    alone = run(SingleProcess(), [np.arange(n)])
    for numbers in on_ranks(len(ranks), lambda group: run(group, ranks[group.rank])):
        np.testing.assert_equal(numbers, alone)


@QUICK
@given(dealt())
def test_means_are_the_same_but_for_rounding(on_ranks, case):
    rng, n, ranks, weights = case
    outputs = {
        "output": rng.normal(100, 1, n),
        "loss": rng.random(n).astype(np.float32),
        "loss_weight": rng.integers(1, 9, n),
    }
    fields = {"y": rng.normal(100, 1, n)}

    def make():
        return {
            "mse": MeanSquaredError(),
            "rmse": RootMeanSquaredError(),
            "mae": MeanAbsoluteError(),
            "r2": R2(),
            "loss": MeanLoss(),
            "perplexity": Perplexity(),
        }

    alone, together = evaluate_both(on_ranks, make, ranks, outputs, fields, weights)
    for numbers in together:
        assert numbers == {
            name: pytest.approx(value, rel=1e-10, nan_ok=True) for name, value in alone.items()
        }


def test_padding_of_another_length_on_each_rank_counts_in_nothing(on_ranks):
    """6 of 7 tokens and 3 of 5 are right; 11 of 14 with the padding."""
    true = [np.array([[1, 2, 3, 4, 5, 6, 7]]), np.array([[1, 2, 3, 4, 5]])]
    guess = [np.array([[1, 2, 3, 4, 5, 6, 1]]), np.array([[1, 2, 3, 1, 1]])]
    for extra in (0, 2):
        padded = [
            true[0],
            np.pad(true[1], ((0, 0), (0, extra))),
        ]
        guessed = [guess[0], np.pad(guess[1], ((0, 0), (0, extra)))]

        def run(group, padded=padded, guessed=guessed):
            metrics = MetricSet({"accuracy": Accuracy(ignore_index=0)})
            metrics.update({"output": guessed[group.rank]}, {"y": padded[group.rank]}, None)
            metrics.reduce(group)
            return metrics.compute(), metrics.metrics["accuracy"].state["sums"].tolist()

        assert on_ranks(2, run) == [({"accuracy": 0.75}, [9.0, 12.0])] * 2


@pytest.mark.parametrize("world_size", [1, 3])
def test_counts_over_ranks_are_exact_beyond_the_integers_of_float32(on_ranks, world_size):
    def run(group):
        metrics = MetricSet(
            {
                "accuracy": Accuracy(),
                "f1": PrecisionRecallF1("micro", num_classes=2),
                "confusion": ConfusionMatrix(num_classes=2),
            }
        )
        metrics.reset()
        for metric in metrics.metrics.values():
            (sums,) = metric.state.values()
            sums += 2.0**24
        metrics.update({"output": np.eye(2)[:1]}, {"y": np.array([0])}, None)
        metrics.reduce(group)
        return [metric.state.popitem()[1].tolist() for metric in metrics.metrics.values()]

    many, more = world_size * 2**24, world_size * (2**24 + 1)
    assert (
        on_ranks(world_size, run)
        == [[[more, more], [[more, many]] * 3, [[more, many], [many, many]]]] * world_size
    )
