"""Themes 2 and 7 on ranks: callbacks of a resumed run go on where they were."""

from __future__ import annotations

import pytest

from tests.cases.watched import NOTED

pytestmark = pytest.mark.slow

ON_ALL = [note for note in NOTED if note[0] != "best"]
"""What is noted on ranks other than 0."""


def check(results):
    (notes, facts), (other_notes, other_facts) = results
    assert [tuple(note) for note in notes] == NOTED
    assert [tuple(note) for note in other_notes] == ON_ALL
    assert other_facts == facts
    reason, best_step, best_eval, skipped_steps, _ = facts
    assert "early stop" in reason
    assert (best_step, best_eval["accuracy"]) == (4, 0.7)
    assert skipped_steps >= 2


@pytest.mark.parametrize("stops", [[7], [3, 10]], ids=str)
def test_callbacks_go_on_to_the_last_bit(two, tmp_path, stops):
    check(two.run("resumed.in_parts", root=str(tmp_path), stops=stops))


@pytest.mark.parametrize("stops", [[7], [3, 10]], ids=str)
@pytest.mark.parametrize("two", ["torch"], indirect=True)
def test_shards_go_on_to_the_last_bit(two, tmp_path, stops):
    """Model, optimizer, moving average and the best weights, each in parts on the ranks."""
    check(two.run("resumed.in_parts", root=str(tmp_path), stops=stops, shards=True))


def test_the_state_of_a_callback_is_that_of_rank_0(two, tmp_path):
    assert two.run("resumed.state_of_main", root=str(tmp_path)) == [0, 0]


def test_a_state_that_a_callback_cannot_take_is_one_error_on_all_ranks(two, tmp_path):
    assert two.agree("resumed.refused_state", root=str(tmp_path)) == "CallbackError: no step"
