"""Where Paddle's ranks meet: what they bring, who is missing, and who came for something else."""

from __future__ import annotations

import socket
import threading

import pytest

from expkit.core.errors import RankError
from expkit.drivers.paddle.meeting import Meeting


@pytest.fixture
def meetings():
    """Three ends of one meeting."""
    pairs = {rank: socket.socketpair() for rank in (1, 2)}
    yield [
        Meeting(0, 3, {rank: pair[0] for rank, pair in pairs.items()}),
        *(Meeting(rank, 3, {0: pair[1]}) for rank, pair in pairs.items()),
    ]
    for pair in pairs.values():
        for end in pair:
            end.close()


def _all_at_once(meetings, call):
    """What each rank's call gives, or raises."""
    outcomes = [None] * len(meetings)

    def run(rank):
        try:
            outcomes[rank] = call(meetings[rank])
        except RankError as error:
            outcomes[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(meetings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return outcomes


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_each_rank_gets_what_rank_0_makes_of_all_messages_in_order(meetings, size):
    def call(meeting):
        message = bytes([65 + meeting.rank]) * size
        return meeting.exchange("letters", message, b"-".join, 5)

    whole = b"-".join(bytes([65 + rank]) * size for rank in range(3))
    assert _all_at_once(meetings, call) == [whole] * 3
    assert _all_at_once(meetings, call) == [whole] * 3


def test_who_is_late_is_named_by_rank_0(meetings):
    with pytest.raises(RankError, match=r"tea: rank 0 of 3 waited for 0\.05 s .*ranks \[1, 2\]"):
        meetings[0].wait("tea", 0.05)


def test_who_is_gone_is_named(meetings):
    meetings[2]._links[0].close()
    threading.Thread(target=lambda: _all_at_once(meetings[1:2], lambda m: m.wait("tea", 1))).start()
    with pytest.raises(RankError, match="rank 2 is gone"):
        meetings[0].wait("tea", 5)


def test_ranks_that_call_different_collectives_do_not_mix_their_messages(meetings):
    def call(meeting):
        purpose = "tea" if meeting.rank != 1 else "coffee"
        return meeting.exchange(purpose, b"", b"".join, 0.2)

    outcomes = _all_at_once(meetings, call)
    assert "came for it, but rank 1 for coffee" in outcomes[0]
    assert "did not come" in outcomes[2]
