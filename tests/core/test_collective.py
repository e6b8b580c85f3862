from __future__ import annotations

import numpy as np
import pytest

from expkit.core.collective import SingleProcess
from expkit.core.errors import RankError


def test_a_world_of_one_is_the_identity():
    group = SingleProcess()
    assert (group.rank, group.local_rank, group.world_size) == (0, 0, 1)
    assert group.all_gather({"a": 1}) == [{"a": 1}]
    assert group.broadcast([1, 2]) == [1, 2]
    assert group.any_rank(True) is True
    assert group.any_rank(False) is False
    group.barrier()


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_a_reduction_is_a_copy(op):
    array = np.array([1.5, -2.5])
    reduced = SingleProcess().all_reduce(array, op)
    np.testing.assert_array_equal(reduced, array)
    reduced[0] = 9
    assert array[0] == 1.5


def test_there_is_no_mean():
    with pytest.raises(ValueError, match="op is 'mean'; allowed: sum, min, max"):
        SingleProcess().all_reduce(np.zeros(1), "mean")


def test_there_is_no_other_rank_to_hear_from():
    with pytest.raises(ValueError, match="src is 1"):
        SingleProcess().broadcast(0, src=1)


def test_flags_of_a_world_of_one_are_answered_as_they_are():
    group, flags = SingleProcess(), [False, False]
    group.watch(lambda: tuple(flags))
    assert group.answers() == (False, False)
    flags[1] = True
    assert group.answers() == group.agree() == (False, True)


def test_rank_0_calls_for_all_and_keeps_its_own_error():
    group = SingleProcess()
    assert group.call_on_main(lambda: [1, 2]) == [1, 2]
    with pytest.raises(KeyError, match="x"):
        group.call_on_main(lambda: {}["x"])


def test_other_ranks_hear_that_rank_0_failed():
    class Second(SingleProcess):
        def broadcast(self, value, src=0):
            return (None, "KeyError: 'x'")

    group = Second()
    group.rank = 1
    with pytest.raises(RankError, match="rank 0 failed: KeyError: 'x'"):
        group.call_on_main(lambda: pytest.fail("only rank 0 calls"))
