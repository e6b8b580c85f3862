"""torch_fsdp on real ranks: the numbers and the checkpoints of one device, in shards."""

from __future__ import annotations

import pytest

from expkit.testing import RankPool, RanksError

pytestmark = pytest.mark.slow

CHECKS = "tests.drivers.torch_checks"
SHARD_CHECKS = "tests.drivers.torch_shard_checks"


@pytest.fixture(scope="module")
def two():
    with RankPool("torch", 2) as made:
        yield made


@pytest.fixture(scope="module")
def three():
    with RankPool("torch", 3) as made:
        yield made


@pytest.fixture(params=["two", "three"])
def pool(request):
    return request.getfixturevalue(request.param)


def run(pool, name, **kwargs):
    module = SHARD_CHECKS if name.startswith("shard") else CHECKS
    return pool.run(f"{module}:{name}", **kwargs)


def same(results):
    assert all(result == results[0] for result in results), results
    return results[0]


@pytest.mark.parametrize("optimizer", ["expkit", "groups", "RAdam"])
def test_shards_train_as_one_device_does(pool, optimizer):
    results = run(pool, "shards_equal_one", optimizer=optimizer)
    for rank, result in enumerate(results):
        assert result["worst"] < 1e-5
        assert result["same shapes"]
        assert result["empty"] == ([15, 1, 11] if rank == 0 else [0, 0, 0])
    same([result["digest"] for result in results])
    same([result["swapped"] for result in results])


def test_units_may_be_kept_after_the_forward(two):
    for result in run(two, "shards_equal_one", reshard_after_forward=False):
        assert result["worst"] < 1e-5


@pytest.mark.parametrize("optimizer", ["expkit", "NAdam"])
def test_a_checkpoint_of_one_device_goes_on_in_shards_and_back(pool, optimizer):
    is_same, difference, exact, error = same(
        run(pool, "shards_exchange_states", optimizer=optimizer)
    )
    assert is_same
    assert difference < 1e-5
    assert exact
    assert "head.weight has shape (3, 3) there, (3, 7) here" in error


def test_each_rank_keeps_its_rows_only(pool):
    results = run(pool, "shard_memory")
    total = results[0][0]
    for _, parameters, means in results:
        assert parameters == means < total
    assert sum(parameters for _, parameters, _ in results) == total


def test_gradients_travel_once_for_each_unit_at_the_windows_end(two):
    assert same(run(two, "shard_traffic")) == [0, 4]  # three blocks, and the rest


def test_units_are_found_or_named(two):
    found = same(run(two, "shard_units"))
    assert found["odd"] == ["blocks.0", "blocks.1", "blocks.2"]
    assert found["transformer"] == ["blocks.0", "blocks.1"]
    assert found["stages"] == ["stages.0", "stages.1"]
    assert found["none"] == []
    assert found["patterns"] == ["blocks.1", "blocks.2", "head"]
    assert "'layers.*', which matches no module" in found["unknown"]
    assert "driver.shard=[blocks.*]" in found["a list"]
    assert "do not implement forward" in found["container"]


def test_bf16_computes_in_bf16_and_keeps_float32(two):
    seen, difference, types, _ = same(run(two, "shard_precision"))
    assert seen == ["torch.bfloat16", "torch.float32"]
    assert 0 < difference < 0.02
    assert types == ["float32", "int64"]


def test_what_shards_cannot_do_is_refused(two):
    errors = same(run(two, "shard_refusals"))
    assert "torch.float32, torch.float64 in one unit" in errors[0]
    assert "driver.precision: is 'fp16'" in errors[1]
    assert "optimizer: is torch.optim.Adafactor" in errors[2]
    assert "optimizer.a: is torch.optim.Muon" in errors[3]
    assert "is wrapped already" in errors[4]


def test_a_models_own_steps_are_used(pool):
    difference, together = same(run(pool, "shard_steps"))
    assert difference < 1e-6
    assert together


def test_gradients_are_exact_sums(two):
    assert same(run(two, "case_25", sync="fsdp")) == -5.0
    assert same(run(two, "case_27", sync="fsdp")) == [2.0, 4.0]
    assert same(run(two, "weight_zero", sync="fsdp")) == 4.0
    clipped, norm = same(run(two, "case_29", sync="fsdp"))
    assert clipped == pytest.approx([0.99123, 0.13216], abs=1e-5)
    assert norm == pytest.approx((36 + 0.64) ** 0.5)
    assert same(run(two, "token_weights", sync="fsdp")) < 1e-6
    assert same(run(two, "equals_one_rank", sync="fsdp"))[0] < 1e-6


@pytest.mark.parametrize("when", ["before", "later"])
def test_a_backbone_may_be_frozen(two, when):
    assert same(run(two, "frozen", sync="fsdp", when=when))[0] < 1e-6


def test_unused_and_differently_frozen_parameters_are_named(two):
    for error, _ in run(two, "unused_head", sync="fsdp", unused=False):
        assert "head.weight, head.bias" in error
        assert "driver=torch_ddp driver.find_unused_parameters=true" in error
    for error in run(two, "frozen_on_one_rank", sync="fsdp"):
        assert "do not train the same parameters" in error


@pytest.mark.parametrize("accumulate", [1, 3])
def test_buffers_follow_the_mean_over_ranks(two, accumulate):
    result = same(run(two, "buffers", sync="fsdp", accumulate=accumulate))
    assert result["worst"] < 1e-6
    assert result["late"] == [2 * accumulate * 1.5] * 2
    assert result["counter"] == 2 * accumulate


def test_flags_of_one_rank_are_seen_by_all_after_the_next_exchange(two):
    seen, _ = same(run(two, "flags", sync="fsdp"))
    assert seen[2:5] == [[False, False], [False, True], [True, False]]


def test_each_rank_goes_on_with_its_own_random_state(two):
    for result in run(two, "state_round_trip", sync="fsdp"):
        assert result["same"]
        assert result["different draws"] == 2


def test_the_death_of_a_rank_is_told_by_the_others(two):
    with pytest.raises(RanksError) as caught:
        run(two, "shard_rank_error")
    two.restart()
    (error,) = caught.value.results.values()
    assert error.startswith("RankError: backward on rank 0 of 2 failed")
