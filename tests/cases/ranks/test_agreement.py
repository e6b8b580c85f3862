"""What is not the same on all ranks, and would train nonsense in silence, is refused on all."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("rows", "the training set is not the same on all ranks: rank 1 has other values of x, y"),
        ("more", "the training set is not the same on all ranks: rank 1 has 45 samples, rank 0"),
        ("held out", "the evaluation set test is not the same on all ranks: rank 1 has 9 samples"),
        ("batch size", "the steps of an epoch are not the same on all ranks: rank 1 has samples"),
    ],
)
def test_a_rank_with_other_data_is_told_by_all_before_the_first_step(two, what, told):
    error, is_early = two.agree("agreement.other_data", what=what)
    assert error.startswith(f"DataError: {told}")
    assert is_early


def test_equal_data_trains(two):
    assert two.agree("agreement.other_data", what=None) == [None, False]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("options", "seen", "evaluated", "kept"),
    [
        ({"eval_every": 2, "save_every": None}, 4, [2], []),
        ({"eval_every": None, "save_every": 2}, 4, [], [2]),
        ({"eval_every": 2, "save_every": 3}, 3, [2], []),
    ],
)
def test_a_rank_that_drifts_is_told_by_all_and_never_evaluated_or_kept(
    two, tmp_path, rank, options, seen, evaluated, kept
):
    (error, *found), other = two.run(
        "agreement.drift", root=str(tmp_path), rank=rank, step=3, **options
    )
    assert error.startswith(
        f"DriverError: the weights are not the same on all ranks after step {seen}: rank 1 has "
    )
    assert "a callback that changes weights on one rank only" in error
    assert [error, *found] == other == [error, evaluated, kept]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_ranks_that_do_not_drift_are_evaluated_and_kept(two, tmp_path, norm):
    options = {"root": str(tmp_path), "rank": 2, "step": 3, "eval_every": 2, "save_every": 5}
    first, _ = two.run("agreement.drift", **options, mlp={"norm": norm})
    assert first == [None, [2, 4, 6, 8, 10], [5, 10]]
