"""The parity table: one seed, one global batch size, any driver, any number of ranks."""

from __future__ import annotations

import pytest

from tests.dist.parity import CASES, STEPS, table, train_all
from tests.dist.project import losses, samples

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def runs(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(train_all)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_each_step_has_the_same_samples_and_the_same_loss(runs, case):
    first, own = runs["torch", 1], runs[case]
    assert list(losses(own.run)) == list(range(1, STEPS + 1))
    assert losses(own.run)[STEPS] < 0.8 * losses(own.run)[1]
    assert {len(indices) for indices in samples(first.run).values()} == {32, 29}
    assert samples(own.run) == samples(first.run)
    assert own.greatest_difference(first) <= 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_the_ranks_share_the_samples_of_a_step(runs, case):
    _, ranks = case
    assert len(list((runs[case].run / "seen").iterdir())) == ranks


def test_the_table_has_a_line_for_each_case(runs):
    lines = table(runs).splitlines()
    assert len(lines) == 2 + len(CASES)
    assert all(line.endswith("| yes |") for line in lines[2:])
