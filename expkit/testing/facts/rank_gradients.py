"""Facts about gradients over ranks: sums and weights of all of them, equal on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from expkit.testing.facts.rank_subject import RankSubject, split
from expkit.testing.rank_checks.training import Windows, part
from expkit.testing.ranks import RankPool
from expkit.testing.steps import CLASSES, FEATURES, State, assert_same, batch_of, flat

SIZES, SLOPES = (3, 1, 2, 5), (1.0, 5.0, 3.0, -2.0)
"""How many samples rank r has, and the gradient of each; the mean of the means is another one."""

ADAM = {"name": "adam", "lr": 0.01}
OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.1},
    "momentum": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "adam": ADAM,
}
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)


class RankGradientFacts(RankSubject):
    """What holds for the gradients of every driver of several ranks."""

    @each_optimizer
    @pytest.mark.parametrize("parts", [1, 2])
    def test_ranks_together_equal_one_process_on_the_same_samples(
        self, pool: RankPool, optimizer: Mapping[str, Any], parts: int
    ) -> None:
        """Ten steps lead to the same parameters, with and without accumulation."""
        windows = list(split(self.world_size, steps=10, per_rank=4, parts=parts))
        results = self.trained(pool, windows, optimizer=optimizer)
        alone = self.trained_alone(windows, optimizer=optimizer)
        moved = flat(alone["state"]["model"]) - flat(alone["before"]["model"])
        assert np.abs(moved).max() > 0.01
        np.testing.assert_allclose(
            flat(results[0]["state"]["model"]), flat(alone["state"]["model"]), rtol=0, atol=1e-6
        )
        assert_equal_on_ranks(results)

    def test_unequal_shards_give_the_exact_mean(self, pool: RankPool) -> None:
        """A sample counts the same, however many its rank has: 2.0 for 3 of slope 1, 1 of 5."""
        sizes, slopes = SIZES[: self.world_size], SLOPES[: self.world_size]
        found, *_ = self.on_ranks(
            pool, "training:mean_of_slopes", sizes=list(sizes), slopes=list(slopes)
        )
        expected = np.dot(sizes, slopes) / sum(sizes)
        (bias,) = found
        np.testing.assert_allclose(bias, np.full(CLASSES, expected), rtol=1e-6)

    def test_gradients_are_the_sums_that_numpy_makes(self, pool: RankPool) -> None:
        """Softmax regression on unequal micro-batches, some samples of weight 0."""
        windows = unequal(self.world_size)
        result, *_ = self.trained(pool, windows, model={"hidden": []})
        expected = regression_gradient(result["before"]["model"], windows[0])
        assert_steps_along(result, expected)

    def test_a_window_over_ranks_equals_a_large_batch(self, pool: RankPool) -> None:
        """Two micro-batches on each rank, of different sizes, are one batch."""
        windows = unequal(self.world_size)
        samples = [each for own in windows[0] for each in own]
        counted = [
            index
            for each in samples
            for index, weight in zip(
                each["indices"], each["weights"] or [1] * len(each["indices"]), strict=True
            )
            if weight
        ]
        result, *_ = self.trained(pool, windows)
        whole = self.trained_alone([[[part(counted)]]])
        np.testing.assert_allclose(
            flat(result["state"]["model"]), flat(whole["state"]["model"]), rtol=1e-5, atol=1e-6
        )

    def test_a_rank_whose_samples_all_weigh_nothing_changes_nothing(self, pool: RankPool) -> None:
        """The others' gradient is that of their samples alone."""
        last = part([7, 8], [0, 0])
        ranks = [[part([3 * rank, 3 * rank + 1])] for rank in range(self.world_size - 1)]
        results = self.trained(pool, [[*ranks, [last]]], model={"hidden": []})
        expected = regression_gradient(results[0]["before"]["model"], ranks)
        assert_steps_along(results[0], expected)
        assert_equal_on_ranks(results)
        np.testing.assert_array_equal(results[-1]["losses"], [[0, 0]])

    def test_labels_that_do_not_count_leave_the_mean_exact(self, pool: RankPool) -> None:
        """The mean is over the labels that count on all ranks, of which each has another number."""
        windows = unequal(self.world_size)
        results = self.trained(pool, windows, model={"hidden": []}, ignore_index=0)
        expected = regression_gradient(results[0]["before"]["model"], windows[0], ignored=0)
        assert_steps_along(results[0], expected)
        counts = sum(result["losses"][0, 1] for result in results)
        assert counts == (weights_of(windows[0]) * (labels_of(windows[0]) != 0)).sum()

    def test_nothing_is_sent_before_the_last_micro_batch(self, pool: RankPool) -> None:
        """Ranks that are at different micro-batches of a window do not wait for one another."""
        done = self.on_ranks(pool, "training:keeps_to_itself_until_the_end", timeout_s=20.0)
        if done[0] is None:
            pytest.skip("ranks hold parts of the model: the forward itself needs all of them")
        assert done == [[True, True]] * self.world_size

    def test_clip_returns_the_norm_before_clipping_on_all_ranks(self, pool: RankPool) -> None:
        """The norm is that of the whole gradient, and the update is clipped by it."""
        windows = list(split(self.world_size, steps=1, per_rank=4, parts=2))
        free, *_ = self.trained(pool, windows)
        step = flat(free["before"]["model"]) - flat(free["state"]["model"])
        norm = float(np.linalg.norm(step))
        results = self.trained(pool, windows, clip_norm=norm / 4)
        assert len({result["norms"][0] for result in results}) == 1
        assert results[0]["norms"][0] == pytest.approx(norm, rel=1e-5)
        clipped = flat(results[0]["before"]["model"]) - flat(results[0]["state"]["model"])
        np.testing.assert_allclose(clipped, step / 4, rtol=1e-4, atol=1e-7)

    def test_losses_are_sums_and_weights_that_add_up_over_ranks(self, pool: RankPool) -> None:
        """Together they are the sums of a single process; none is a mean."""
        windows = unequal(self.world_size)
        results = self.trained(pool, windows)
        alone = self.trained_alone(windows)
        total = np.sum([result["losses"] for result in results], axis=0)
        np.testing.assert_allclose(total, alone["losses"], rtol=1e-6)
        assert total[0, 1] == weights_of(windows[0]).sum()
        own = [result["losses"][0, 1] for result in results]
        assert own == [weights_of([ranks]).sum() for ranks in windows[0]]

    def test_statistics_of_batch_normalisation_are_equal_on_ranks(self, pool: RankPool) -> None:
        """After each step: the value before, plus the mean of what each rank would add."""
        windows = list(split(self.world_size, steps=3, per_rank=8, parts=2))
        for steps in (1, 3):
            results = self.trained(pool, windows[:steps], model={"norm": self.norm})
            assert_equal_on_ranks(results)
        first, *_ = self.trained(pool, windows[:1], model={"norm": self.norm})
        alone = [
            self.trained_alone([[own]], model={"norm": self.norm})["state"]["model"]
            for own in windows[0]
        ]
        before, after = first["before"]["model"], first["state"]["model"]
        statistics = list(filter(is_statistic, before))
        assert bool(statistics) == (self.norm != "none")
        for path in statistics:
            change = np.mean([each[path] - before[path] for each in alone], axis=0)
            assert np.abs(change).max() > 0.01
            np.testing.assert_allclose(after[path] - before[path], change, rtol=1e-4, atol=1e-6)

    def test_evaluation_leaves_no_trace_and_asks_no_other_rank(self, pool: RankPool) -> None:
        """A rank may evaluate alone, in the middle of a window, unless it holds only a part."""
        found = self.on_ranks(
            pool, "training:evaluates_without_a_trace", norm=self.norm, timeout_s=20.0
        )
        assert found == [True] * self.world_size

    def test_an_overflow_on_one_rank_leaves_out_the_update_on_all(self, pool: RankPool) -> None:
        """The loss scale is halved on all, and the next step is made on all."""
        if self.scaled_precision is None:
            pytest.skip("no precision with loss scaling")
        results = self.on_ranks(pool, "training:overflow", precision=self.scaled_precision)
        assert [result["applied"] for result in results] == [[False, True]] * self.world_size
        first, left_out, next_one = results[0]["states"]
        assert_same(first["model"], left_out["model"])
        assert left_out["scaler"]["value"] == 512.0
        assert not np.array_equal(flat(first["model"]), flat(next_one["model"]))
        assert_equal_on_ranks([{"state": result["states"][-1]} for result in results])


def unequal(world_size: int) -> Windows:
    """One window: each rank with two micro-batches of other sizes, and with padding."""
    ranks = []
    for rank in range(world_size):
        start, size = 12 * rank, SIZES[rank]
        padded = [*range(start + size, start + size + 2), start]
        ranks.append([part(range(start, start + size)), part(padded, [1, 1, 0])])
    return [ranks]


def indices_of(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> list[int]:
    """The samples of a window, in order of ranks."""
    return [index for own in ranks for each in own for index in each["indices"]]


def labels_of(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> NDArray[Any]:
    """Their labels."""
    labels: NDArray[Any] = batch_of(indices_of(ranks)).fields["y"]
    return labels


def weights_of(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> NDArray[np.float64]:
    """Their weights."""
    parts = [each for own in ranks for each in own]
    return np.concatenate([each["weights"] or np.ones(len(each["indices"])) for each in parts])


def regression_gradient(
    state: State, ranks: Sequence[Sequence[Mapping[str, Any]]], ignored: int | None = None
) -> dict[str, NDArray[np.float64]]:
    """The gradient of softmax regression in float64.

    With p = softmax(x W + b) and the one-hot label t it is the weighted mean of x (p - t) for W,
    and of p - t for b.

    Args:
        state: a matrix, in either orientation, and a bias, by path.
        ranks: the samples of all micro-batches of a window.
        ignored: label that does not count.
    """
    (matrix,) = (path for path, value in state.items() if value.ndim == 2)
    (bias,) = (path for path, value in state.items() if value.ndim == 1)
    transposed = state[matrix].shape != (FEATURES, CLASSES)
    x = batch_of(indices_of(ranks)).fields["x"].astype(np.float64)
    y, weights = labels_of(ranks), weights_of(ranks)
    w = state[matrix].astype(np.float64)
    logits = x @ (w.T if transposed else w) + state[bias]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if ignored is not None:
        weights = weights * (y != ignored)
    error = (p - np.eye(CLASSES)[y]) * (weights / weights.sum())[:, None]
    of_matrix = x.T @ error
    return {matrix: of_matrix.T if transposed else of_matrix, bias: error.sum(axis=0)}


def assert_steps_along(result: Mapping[str, Any], expected: State) -> None:
    """A step of descent with rate 1 went along this gradient."""
    before, after = result["before"]["model"], result["state"]["model"]
    for path, gradient in expected.items():
        np.testing.assert_allclose(
            before[path] - after[path], gradient, rtol=1e-5, atol=1e-6, err_msg=path
        )


def assert_equal_on_ranks(results: Sequence[Mapping[str, Any]]) -> None:
    """All that ranks keep of the model is equal to the last bit."""
    for result in results[1:]:
        if result["state"]["model"]:  # a rank need not have it whole
            assert_same(results[0]["state"]["model"], result["state"]["model"])


def is_statistic(path: str) -> bool:
    """Whether a path is one of batch normalisation's running values, in any framework's words."""
    return path.rpartition(".")[2].strip("_").removeprefix("running_") in {
        "mean",
        "var",
        "variance",
    }
