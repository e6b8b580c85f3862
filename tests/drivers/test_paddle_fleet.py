"""Paddle on several ranks."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("paddle")

from expkit.core.errors import DriverError
from expkit.drivers.paddle import PaddleDriver, PaddleFleetDriver
from expkit.testing import RankPool, RanksError

pytestmark = pytest.mark.slow

CHECKS = "tests.drivers.paddle_checks:"
SYNCS = ("flat", "native")

both = pytest.mark.parametrize("sync", SYNCS)


class Pools:
    """Pools by number of ranks, started when they are first asked for."""

    def __init__(self):
        self._pools = {}

    def run(self, check, world_size=2, **kwargs):
        pool = self._pools.get(world_size)
        if pool is None:
            pool = self._pools[world_size] = RankPool("paddle", world_size)
        elif pool.is_broken:
            pool.restart()
        return pool.run(CHECKS + check, **kwargs)

    def close(self):
        for pool in self._pools.values():
            pool.close()


@pytest.fixture(scope="module")
def pools():
    found = Pools()
    yield found
    found.close()


@pytest.fixture
def fresh():
    """A pool whose ranks have not joined yet, or may die."""
    with RankPool("paddle", 2) as pool:
        yield lambda check, **kwargs: pool.run(CHECKS + check, **kwargs)


def equal(results):
    assert all(result == results[0] for result in results), results
    return results[0]


# -- exact gradients -------------------------------------------------------------------------------


@both
def test_case_25_gradients_are_exchanged_with_the_last_micro_batch(pools, sync):
    assert equal(pools.run("case_25", sync=sync)) == -5.0


@both
def test_case_27_ranks_with_fewer_samples_count_less(pools, sync):
    gradient, weight = equal(pools.run("case_27", sync=sync))
    assert gradient == 2.0
    assert weight == 4.0


@both
def test_samples_of_weight_zero_change_nothing(pools, sync):
    assert equal(pools.run("weight_zero", sync=sync)) == 4.0


@both
def test_case_29_clipping_is_done_once_on_the_sum(pools, sync):
    applied, norm = equal(pools.run("case_29", sync=sync))
    assert applied == pytest.approx([0.99123, 0.13216], abs=1e-5)
    assert norm == pytest.approx(6.05310, abs=1e-4)


@both
def test_losses_over_tokens_have_the_mean_of_all_ranks(pools, sync):
    assert max(pools.run("token_weights", sync=sync)) < 1e-6


@pytest.mark.parametrize(("sync", "world_size"), [("flat", 2), ("native", 2), ("flat", 3)])
def test_several_ranks_equal_one(pools, sync, world_size):
    difference, _ = equal(pools.run("equals_one_rank", world_size, sync=sync, steps=50))
    assert difference < 1e-6


def test_case_31_the_rate_is_that_of_one_process(pools):
    assert equal(pools.run("case_31")) == 0.00390625


@both
def test_parameters_of_both_types_get_the_gradients_of_one_rank(pools, sync):
    difference, _ = equal(pools.run("mixed_types", sync=sync))
    assert difference < 1e-5


# -- what is communicated --------------------------------------------------------------------------


@both
def test_nothing_is_sent_before_the_last_micro_batch(pools, sync):
    early, _ = equal(pools.run("traffic", sync=sync))
    assert early == [0, 0, 0]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_one_all_reduce_carries_gradients_statistics_and_flags(pools, norm):
    _, all_steps = equal(pools.run("traffic", sync="flat", norm=norm))
    assert all_steps == [1, 1, 1]


# -- unused and frozen parameters ------------------------------------------------------------------


@both
def test_an_unused_parameter_is_named_with_the_option_that_allows_it(pools, sync):
    error, _ = equal([(e.replace("rank 1", "rank 0"), s) for e, s in run_head(pools, sync, False)])
    assert "head.weight" in error
    assert "driver.find_unused_parameters=true" in error


@both
def test_an_unused_parameter_is_left_as_it_is_where_that_is_allowed(pools, sync):
    error, same = equal(run_head(pools, sync, True))
    assert error is None
    assert sorted(same) == ["head.bias", "head.weight"]


def run_head(pools, sync, unused):
    return pools.run("unused_head", sync=sync, unused=unused)


@both
def test_case_35_a_layer_used_in_an_early_micro_batch_only_is_exchanged(pools, sync):
    difference, _ = equal(pools.run("case_35", sync=sync))
    assert difference < 1e-6


@both
def test_a_parameter_used_on_one_rank_gets_the_sum_on_all(pools, sync):
    difference, _ = equal(pools.run("used_on_one_rank", sync=sync, unused=True))
    assert difference < 1e-6


def test_a_parameter_used_on_one_rank_is_an_error_on_all_where_it_must_be_used(pools):
    errors = [error for error, _ in pools.run("used_on_one_rank", sync="flat", unused=False)]
    assert "b.weight" in errors[0]
    assert "on some ranks only" in errors[0]
    assert "on rank 1" in errors[1]


def test_the_wrapper_never_lets_ranks_drift_apart_by_a_parameter_used_on_one_rank(fresh):
    try:
        errors = [error for error, _ in fresh("used_on_one_rank", sync="native", unused=False)]
    except RanksError as died:
        errors = [str(died)]
    texts = [error for error in errors if isinstance(error, str)]
    assert any("b.weight" in text or "died" in text for text in texts), errors


@both
@pytest.mark.parametrize("when", ["before", "later"])
def test_case_133_frozen_weights_stay_and_the_rest_is_trained(pools, sync, when):
    difference, _ = equal(pools.run("frozen", sync=sync, when=when))
    assert difference < 1e-6


@both
def test_freezing_on_one_rank_is_an_error_on_all(pools, sync):
    errors = pools.run("frozen_on_one_rank", sync=sync)
    assert all("rank" in (error or "") for error in errors), errors


# -- buffers ---------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("accumulate", [1, 2])
def test_buffers_add_the_mean_of_what_the_ranks_add(pools, sync, accumulate):
    results = pools.run("buffers", sync=sync, accumulate=accumulate)
    assert max(result["worst"] for result in results) < 1e-6
    assert equal([result["digest"] for result in results])
    # In two steps rank r adds r + 1 in each micro-batch; of the counter rank 0's value counts.
    assert equal([result["late"] for result in results]) == [3.0 * accumulate] * 2
    assert equal([result["counter"] for result in results]) == 2 * accumulate


# -- flags and collectives -------------------------------------------------------------------------


@both
def test_flags_of_one_rank_are_answered_on_all_after_the_exchange(pools, sync):
    seen, agreed = equal(pools.run("flags", sync=sync))
    off = [False, False]
    assert seen[:4] == [off, off, off, [False, True]]
    assert agreed == [True, False]
    assert seen[4:] == [[True, False], off, [False], [False]]


@pytest.mark.parametrize("world_size", [2, 3])
def test_collectives(pools, world_size):
    for result in pools.run("collectives", world_size):
        error = result.pop("error")
        refused = result.pop("refused")
        assert result == {
            "exact": 2**53 + 1 + 2 * (world_size - 1),
            "fine": 1.0 + (world_size - 1) * 2.0**-40,
            "extremes": [0.0, world_size - 1.0],
            "shape": [2, 0, 3],
            "scalar": sum(range(1, world_size + 1)),
            "nested": [[rank, rank, 100_000 * rank] for rank in range(world_size)],
            "from_each": list(range(world_size)),
            "after": "fine",
            "any": [True, False],
        }
        assert "no space" in error
        assert all("allowed" in text for text in refused)


def test_waiting_ends_with_an_error_when_a_rank_does_not_come_in_time(fresh):
    _, error = fresh("late")
    assert "barrier: rank 1 of 2 waited for 1 s" in error
    assert "driver.timeout_s" in error


def test_the_other_ranks_wait_while_rank_0_is_busy(pools):
    for total, seconds in pools.run("patient", seconds=1.0):
        assert total == 3.0
        assert seconds >= 0.9


@pytest.mark.timeout(200)
def test_rank_0_may_be_busy_for_longer_than_gloo_waits(pools):
    for total, _ in pools.run("patient", seconds=33.0, timeout_s=120):
        assert total == 3.0


# -- a rank that is gone ---------------------------------------------------------------------------


def test_collectives_tell_that_a_rank_is_gone(fresh):
    began = time.monotonic()
    with pytest.raises(RanksError) as caught:
        fresh("rank_errors")
    assert caught.value.rank == 1  # who died is blamed
    assert time.monotonic() - began < 20
    step_error, barrier_error, gather_error = caught.value.results[0]
    assert "all_reduce of tensors on rank 0 of 2" in step_error
    assert "rank 1 is gone" in barrier_error
    assert "rank 1 is gone" in gather_error


def test_waiting_ends_at_once_when_rank_0_is_gone(fresh):
    began = time.monotonic()
    with pytest.raises(RanksError) as caught:
        fresh("main_is_gone")
    assert time.monotonic() - began < 20
    assert "rank 0 is gone" in caught.value.results[1]


def test_a_rank_that_dies_in_the_backward_hangs_nobody(fresh):
    began = time.monotonic()
    with pytest.raises(RanksError):
        fresh("dies_in_the_backward")
    assert time.monotonic() - began < 20


# -- joining ---------------------------------------------------------------------------------------


def test_case_127_a_process_joins_once(fresh):
    for weight, num_inits, errors in fresh("joins_once"):
        assert weight == -1.0
        assert num_inits == 1
        assert "driver.backend" in errors[0]
        assert all("driver.device" in error for error in errors[1:])


@pytest.mark.parametrize("world_size", [2, 3])
def test_weights_and_buffers_of_rank_0_count(pools, world_size):
    for same, error in pools.run("same_start", world_size):
        assert same
        assert "different models" in error


def test_nobody_can_connect_to_a_running_rank(fresh):
    assert fresh("listeners") == [[], []]


@pytest.mark.parametrize("with_fleet", [True, False])
def test_a_group_and_a_wrapped_model_of_the_user_are_taken_as_they_are(fresh, with_fleet):
    result = equal(fresh("user_wrapped", with_fleet=with_fleet))
    assert result["state"] == {"w": [-5.0]}
    assert result["plain"]
    assert len(result["warnings"]) == 1
    assert "train_step" in result["warnings"][0]
    assert result["output"] == [-5.0]
    assert result["gathered"] == [0, 1]


def test_a_role_maker_of_the_user_starts_fleet(fresh):
    assert fresh("role_maker") == [[True, 0, 2], [True, 1, 2]]


def test_a_process_that_is_no_rank_is_told_how_to_start_some():
    with pytest.raises(DriverError, match="python -m expkit driver=paddle_fleet"):
        PaddleFleetDriver(device="cpu")


# -- options ---------------------------------------------------------------------------------------


def test_the_wrapper_reaches_the_own_step_of_a_model(pools):
    assert equal(pools.run("steps_through_native")) == -1.0


def test_options_that_are_wrong_or_without_effect_are_refused(pools):
    errors = equal(pools.run("options"))
    parts = [
        "driver.gradient_sync",
        "driver.data_parallel: has no effect",
        "allowed: comm_buffer_size, last_comm_buffer_size",
        "driver.data_parallel.group",
        "driver.device",
        "parameter servers",
        "driver.fleet.role_maker",
        "driver.precision=fp16",
        "allowed: fuse_grad_size_in_MB, last_comm_group_size_MB, find_unused_parameters",
        "driver.fleet.strategy.fuse_grad_size_in_MB: is 'large'",
        "driver.fleet.maker",
        "driver.fleet.strategy: has no effect",
    ]
    for error, part in zip(errors, parts, strict=True):
        assert error is not None, part
        assert part in error


def test_auto_chooses_by_size_and_options_reach_the_wrapper(pools):
    mega = 2**20
    assert equal(pools.run("choices")) == [
        "FlatExchange",
        f"NativeExchange {25 * mega} {mega}",
        "FlatExchange",
        f"NativeExchange {3 * mega} {mega // 2}",
        "FlatExchange",
    ]


def test_sparse_gradients_are_refused(pools):
    assert "sparse=False" in equal(pools.run("sparse"))


# -- state -----------------------------------------------------------------------------------------


def test_cases_123_and_129_state_goes_by_the_paths_of_the_plain_model(pools):
    digests, keys, paths = equal(pools.run("second_model"))
    assert len(set(digests)) == 1
    assert keys == [paths, paths]


def test_one_process_needs_no_launcher():
    assert PaddleDriver(device="cpu").world_size == 1
