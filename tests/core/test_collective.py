from __future__ import annotations

import numpy as np
import pytest

from expkit.core.collective import SingleProcess


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
