"""Themes 4 and 13 on two ranks: streams, a user's own loader and a user's own sampler."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

KINDS = ["stream", "resumable stream", "loader", "batch sampler", "framework"]
SHUFFLED = [*KINDS, "framework, distributed"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ranks_share_the_samples_that_one_would_train(two, name, accumulate):
    found = two.agree("streams.shared_out", name=name, accumulate=accumulate)
    assert found["steps"] == found["alone"]
    assert found["samples"] == [44.0, 44.0]
    assert found["distance"] < 1e-5


def test_a_distributed_sampler_keeps_its_parts(two):
    """22 samples, 11 for each rank: in steps of 8, 8 and 6."""
    found = two.agree("streams.shared_out", name="framework, distributed")
    epochs = [sum(found["steps"][i : i + 3], []) for i in (0, 3)]  # noqa: RUF017
    assert [sorted(epoch) for epoch in epochs] == [[*range(22)]] * 2
    assert [len(step) for step in found["steps"]] == [8, 8, 6] * 2
    assert found["samples"][0] == 44.0


@pytest.mark.parametrize("name", SHUFFLED)
@pytest.mark.parametrize("step", [2, 4])
def test_a_run_goes_on_as_if_it_had_never_stopped(two, tmp_path, name, step):
    steps, straight, again = two.agree("streams.resumed", name=name, root=str(tmp_path), step=step)
    assert steps > step
    assert straight == again


@pytest.mark.parametrize("kind", ["stream", "loader"])
@pytest.mark.parametrize("n", [1, 33, 600])
def test_each_sample_is_evaluated_once(two, kind, n):
    """Case 48, of data without a length."""
    assert two.agree("streams.evaluated", n=n, kind=kind) == [n, n]


def test_a_weighted_sampler_is_shared_out(two):
    """Case 40: 50 samples on each rank, none without a weight."""
    assert two.agree("streams.weighted") == [[50, [2, 3]], [50, [2, 3]]]


def test_a_distributed_sampler_is_refused_where_expkit_shares_out(two):
    in_evaluation, as_sampler = two.agree("streams.distributed_in_evaluation")
    assert "gives some samples twice" in in_evaluation
    assert "shares the samples out to 2 ranks, which expkit does itself" in as_sampler
