"""Theme 13 on two ranks: what is drawn while samples are read."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_draws_of_ranks_and_epochs_are_different_and_the_same_in_a_second_run(two):
    """Case 111."""
    first = two.run("reading.drawn", num_workers=2)
    assert two.run("reading.drawn", num_workers=2) == first
    assert two.run("reading.drawn", num_workers=0) == first
    for generator in range(3):
        values = [row[generator] for rank in first for epoch in (rank[0], rank[1]) for row in epoch]
        assert len(values) == len(set(values)) == 16
    assert first[0][2] == first[1][2]


@pytest.mark.parametrize("n", [8, 7])
def test_each_sample_draws_what_it_would_without_ranks(two, n):
    ranks, [alone, _] = two.run("reading.drawn", n=n), two.run("reading.drawn_alone", n=n)
    for epoch in (0, 1):
        seen = [row for rank in ranks for row in rank[epoch]]
        assert {tuple(row) for row in seen} == {tuple(row) for row in alone[epoch]}
