"""Facts about collectives and flags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from expkit.testing.facts.rank_subject import RankSubject
from expkit.testing.ranks import RankPool


class RankCollectiveFacts(RankSubject):
    """What holds for what ranks tell each other, on every driver."""

    def test_each_rank_knows_its_place_from_the_beginning(self, pool: RankPool) -> None:
        """Rank, local rank and world size are there once the driver is made."""
        expected = [[rank, rank, self.world_size] for rank in range(self.world_size)]
        assert self.on_ranks(pool, "collectives:place") == expected

    def test_integers_are_reduced_exactly(self, pool: RankPool) -> None:
        """Beyond what float64 could hold."""
        arrays = [
            np.array([[2**53 + 1 + 2 * rank, -(2**61) + rank, rank]], dtype=np.int64)
            for rank in range(self.world_size)
        ]
        self._assert_reduced(pool, arrays)

    def test_floating_point_numbers_are_reduced_in_float64(self, pool: RankPool) -> None:
        """Beyond what float32 could hold; every rank gets the very same bits."""
        arrays = [
            np.array([2.0**24 + 1 + rank, 2.0**-1000 * (rank + 1), -0.5 * rank])
            for rank in range(self.world_size)
        ]
        self._assert_reduced(pool, arrays)

    @pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (3, 1000)])
    def test_arrays_of_any_shape_are_reduced(self, pool: RankPool, shape: tuple[int, ...]) -> None:
        """Scalars and empty arrays too; the shape stays."""
        rng = np.random.default_rng(0)
        arrays = [rng.integers(-50, 50, shape).astype(np.int64) for _ in range(self.world_size)]
        self._assert_reduced(pool, [np.asarray(array) for array in arrays])

    def _assert_reduced(self, pool: RankPool, arrays: list[NDArray[Any]]) -> None:
        stacked = np.stack(arrays)
        for found in self.on_ranks(pool, "collectives:reduced", arrays=arrays):
            for op, expected in (
                ("sum", stacked.sum(axis=0)),
                ("min", stacked.min(axis=0)),
                ("max", stacked.max(axis=0)),
            ):
                assert found[op].dtype == stacked.dtype
                assert found[op].shape == arrays[0].shape
                np.testing.assert_array_equal(found[op], expected)
            assert found["unchanged"]

    def test_there_is_no_other_reduction(self, pool: RankPool) -> None:
        """No mean, on purpose; the error names what is allowed, before anything is sent."""
        said = self.on_ranks(pool, "collectives:unknown_reduction")
        assert len(set(said)) == 1
        assert "mean" in said[0]
        assert "sum, min, max" in said[0]

    def test_values_are_gathered_in_the_order_of_ranks(self, pool: RankPool) -> None:
        """Nested, with other sizes on each rank, an empty array among them."""
        for values in self.on_ranks(pool, "collectives:gathered"):
            assert [value["rank"] for value in values] == list(range(self.world_size))
            for rank, value in enumerate(values):
                assert value["text"] == "ü" * rank * 1000
                np.testing.assert_array_equal(value["nested"][0]["array"], np.arange(rank * 500))

    def test_every_rank_can_broadcast(self, pool: RankPool) -> None:
        """Objects with arrays, whose sizes the others do not know."""
        for values in self.on_ranks(pool, "collectives:broadcasts"):
            for src, value in enumerate(values):
                assert value["from"] == src
                assert value["text"] == "x" * src
                np.testing.assert_array_equal(value["array"], np.full(src + 1, 0.1))

    def test_a_flag_of_any_rank_is_seen_by_all(self, pool: RankPool) -> None:
        """None, each in turn, all."""
        expected = [False, *[True] * self.world_size, True]
        assert self.on_ranks(pool, "collectives:any_of") == [expected] * self.world_size

    def test_a_barrier_waits_for_the_last(self, pool: RankPool) -> None:
        """Whichever it is: no rank leaves before the last has come."""
        for slow in (0, self.world_size - 1):
            times = self.on_ranks(pool, "collectives:barrier_times", slow=slow)
            last_to_come = max(came for came, _ in times)
            assert all(left >= last_to_come for _, left in times)

    def test_a_call_on_main_gives_its_result_or_its_error_to_all(self, pool: RankPool) -> None:
        """The others get a RankError; what comes after works."""
        for rank, found in enumerate(self.on_ranks(pool, "collectives:calls_on_main")):
            assert found["answer"]["text"] == "done"
            np.testing.assert_array_equal(found["answer"]["array"], np.arange(3))
            told = "OSError: disk full"
            assert found["said"] == (told if rank == 0 else f"RankError: rank 0 failed: {told}")
            assert found["total"] == sum(range(self.world_size))
            assert found["calls"] == (["works", "fails"] if rank == 0 else [])

    def test_flags_travel_with_the_gradients(self, pool: RankPool) -> None:
        """Raised on one rank, seen by all after the next exchange, the same on all."""
        none, second = [False, False, False], [False, True, False]
        expected = {
            "at first": none,
            "agreed at first": [True, False, False],
            "answered at first": [True, False, False],
            "none raised": none,
            "raised since": none,
            "raised before": second,
            "agreed": [True, False, True],
            "answered then": [True, False, True],
            "taken back": none,
            "none watched": [],
        }
        assert self.on_ranks(pool, "collectives:flags") == [expected] * self.world_size
