"""Facts about state, seeds and the life of a driver over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from expkit.testing.facts.rank_gradients import ADAM, assert_equal_on_ranks, each_optimizer
from expkit.testing.facts.rank_subject import RankSubject, split
from expkit.testing.rank_checks.subject import NamedSubject
from expkit.testing.ranks import RankPool
from expkit.testing.steps import assert_same, flat

_MODEL = {"dropout": 0.3}


class RankStateFacts(RankSubject):
    """What holds for the state of every driver of several ranks."""

    @each_optimizer
    def test_a_state_round_trip_is_exact_on_all_ranks(
        self, pool: RankPool, optimizer: Mapping[str, Any]
    ) -> None:
        """Ranks that take back rank 0's state, and each its generators, go on to the last bit."""
        windows = list(split(self.world_size, steps=6, per_rank=4, parts=2))
        kwargs = {"optimizer": optimizer, "model": _MODEL}
        straight = self.trained(pool, windows, **kwargs)
        first = self.trained(pool, windows[:3], **kwargs)
        state = first[0]["state"]
        generators = [each["state"]["rng"] for each in first]
        resumed = self.trained(
            pool, windows[3:], state=state, generators=generators, seed=9, **kwargs
        )
        assert_same(state, resumed[0]["before"])
        for end, other in zip(straight, resumed, strict=True):
            assert_same(end["state"], other["state"])

    @each_optimizer
    def test_a_state_of_ranks_loads_in_one_process_and_back(
        self, pool: RankPool, optimizer: Mapping[str, Any]
    ) -> None:
        """It has the same keys and numbers, whoever takes it, and training goes on from there."""
        windows = list(split(self.world_size, steps=6, per_rank=4))
        state = self.trained(pool, windows[:3], optimizer=optimizer)[0]["state"]
        alone = self.trained_alone(windows[3:], optimizer=optimizer, state=state)
        assert_same(without_generators(state), without_generators(alone["before"]))
        together = self.trained(pool, windows[3:], optimizer=optimizer, state=state)
        np.testing.assert_allclose(
            flat(together[0]["state"]["model"]), flat(alone["state"]["model"]), rtol=0, atol=1e-6
        )
        back = self.trained(pool, [], optimizer=optimizer, state=alone["state"])
        assert_same(without_generators(alone["state"]), without_generators(back[0]["before"]))

    def test_state_keys_are_parameter_paths_on_ranks_too(self, pool: RankPool) -> None:
        """No wrapper's prefix, no index: the keys are those of a single process."""
        windows = list(split(self.world_size, steps=1, per_rank=4))
        state = self.trained(pool, windows, optimizer=ADAM)[0]["state"]
        alone = self.trained_alone(windows, optimizer=ADAM)["state"]
        (accumulators,) = state["optimizer"].values()
        paths = {key.rpartition("/")[0] for key in accumulators}
        assert paths - {""} == set(state["model"])
        assert set(state["model"]) == set(alone["model"])
        assert set(accumulators) == set(alone["optimizer"]["default"])

    def test_all_ranks_begin_with_the_weights_of_rank_0(self, pool: RankPool) -> None:
        """Even where each initialises its model otherwise."""
        first, *others = self.on_ranks(pool, "state:first_weights", norm=self.norm)
        single = NamedSubject(self.single_factory, self.model_factory)
        assert_same(first, single.prepared(norm=self.norm).model_state())
        for other in others:
            if other:  # a rank need not have it whole
                assert_same(first, other)

    def test_random_numbers_differ_by_rank_and_resume(self, pool: RankPool) -> None:
        """Python's, NumPy's and dropout's: another stream on each rank, in the state of each."""
        results = self.on_ranks(pool, "state:random_streams")
        for result in results:
            assert result["first"] == result["again"] == result["restarted"]
            assert not set(result["first"]) & set(result["second"])
        streams = [number for result in results for number in result["first"]]
        assert len(set(streams)) == 3 * self.world_size

    def test_the_average_of_the_parameters_is_kept_on_ranks(self, pool: RankPool) -> None:
        """It is decay * before + (1 - decay) * after, and swapping twice leaves no trace."""
        results = self.on_ranks(pool, "state:average", decay=0.75)
        found = results[0]
        for path, average in found["average"].items():
            expected = 0.75 * found["start"][path] + 0.25 * found["end"][path]
            np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-7)
        assert_same(found["end"], found["back"])
        for key in ("average", "back"):
            assert_equal_on_ranks([{"state": {"model": result[key]}} for result in results])

    def test_setup_twice_and_shutdown_after_an_error_are_safe(self, pool: RankPool) -> None:
        """The next driver in the same processes works."""
        found = self.on_ranks(pool, "state:life_after_an_error", timeout_s=20.0)
        expected = {"failed": True, "holds_nothing": True, "applied": True}
        assert found == [expected] * self.world_size


def without_generators(state: Mapping[str, Any]) -> dict[str, Any]:
    """What of a state belongs to no rank alone."""
    return {key: value for key, value in state.items() if key != "rng"}
