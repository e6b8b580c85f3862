"""Theme 4 on two ranks: samplers share out what one process would see."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_draws_by_weight_are_shared_out(two):
    """Case 40."""
    shares = two.run("samplers.weighted")
    assert [len(share) for share in shares] == [50, 50]
    assert {index for share in shares for index in share} == {2, 3}
    assert shares[0] != shares[1]


@pytest.mark.parametrize("name", ["bucketed", "balanced", "in_turn"])
def test_two_ranks_train_on_the_windows_of_one(two, name):
    (alone, _), _ = two.run("samplers.steps", name=name, alone=True)
    (first, one), (second, other) = two.run("samplers.steps", name=name, alone=False)
    assert one == other
    assert [step for step, _ in first] == [step for step, _ in second] == [s for s, _ in alone]
    for (_, whole), (_, even), (_, odd) in zip(alone, first, second, strict=True):
        together = [index for pair in zip(even, odd, strict=True) for index in pair]
        assert together[: len(whole)] == whole
