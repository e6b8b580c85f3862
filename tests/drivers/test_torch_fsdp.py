"""torch_fsdp: the facts about drivers of several ranks, and what only it has."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from expkit.testing import RanksError
from tests.drivers.suites import OnTorch

pytestmark = pytest.mark.slow


class TestOnThree(OnTorch):
    world_size = 3
    driver_factory = "tests.drivers.factories_torch:fsdp"
    scaled_precision = None


@pytest.fixture
def framework():
    return "torch"


@pytest.mark.parametrize("optimizer", ["expkit", "groups", "RAdam"])
def test_shards_train_as_one_device_does(three, optimizer):
    results = three.run("on_shards.equal_one", optimizer=optimizer)
    for rank, result in enumerate(results):
        assert result["worst"] < 1e-5
        assert result["same shapes"]
        assert result["kept"] == ([15, 1, 11] if rank == 0 else [0, 0, 0])
        assert result["digests"] == results[0]["digests"]


def test_units_may_be_kept_after_the_forward(three):
    for result in three.run("on_shards.equal_one", reshard_after_forward=False):
        assert result["worst"] < 1e-5


@pytest.mark.parametrize("optimizer", ["expkit", "NAdam"])
def test_a_checkpoint_of_one_device_goes_on_in_shards_and_back(three, optimizer):
    is_same, difference, exact, error = three.agree(
        "on_shards.exchange_states", optimizer=optimizer
    )
    assert is_same
    assert difference < 1e-5
    assert exact
    assert "head.weight has shape (3, 3) there, (3, 7) here" in error


def test_each_rank_keeps_its_rows_only(three):
    results = three.run("on_shards.memory")
    total = results[0][0]
    for _, parameters, means in results:
        assert parameters == means < total
    assert sum(parameters for _, parameters, _ in results) == total


def test_gradients_travel_once_for_each_unit_at_the_windows_end(three):
    assert three.agree("on_shards.traffic") == [0, 4]  # three blocks, and the rest


def test_units_are_found_or_named(three):
    found = three.agree("on_shards.units")
    assert found["odd"] == ["blocks.0", "blocks.1", "blocks.2"]
    assert found["transformer"] == ["blocks.0", "blocks.1"]
    assert found["stages"] == ["stages.0", "stages.1"]
    assert found["none"] == []
    assert found["patterns"] == ["blocks.1", "blocks.2", "head"]
    assert "'layers.*', which matches no module" in found["unknown"]
    assert "driver.shard=[blocks.*]" in found["a list"]
    assert "do not implement forward" in found["container"]


def test_bf16_computes_in_bf16_and_keeps_float32(three):
    seen, difference, types, _ = three.agree("on_shards.precision")
    assert seen == ["torch.bfloat16", "torch.float32"]
    assert 0 < difference < 0.02
    assert types == ["float32", "int64"]


def test_weights_of_bfloat16_are_gathered_as_they_are(three):
    is_exact, is_back, types = three.agree("on_shards.half_weights")
    assert is_exact
    assert is_back
    assert types == ["bfloat16", "int64"]


def test_what_shards_cannot_do_is_refused(three):
    errors = three.agree("on_shards.refusals")
    assert "torch.float32, torch.float64 in one unit" in errors[0]
    assert "driver.precision: is 'fp16'" in errors[1]
    assert "optimizer: is torch.optim.Adafactor" in errors[2]
    assert "optimizer.a: is torch.optim.Muon" in errors[3]
    assert "is wrapped already" in errors[4]


def test_a_models_own_steps_are_used(three):
    difference, together = three.agree("on_shards.steps")
    assert difference < 1e-6
    assert together


def test_the_death_of_a_rank_is_told_by_the_others(all_ranks, framework):
    with pytest.raises(RanksError) as caught:
        all_ranks(framework, 3).doomed().run(
            "last_rank_leaves_before_the_backward", sync="fsdp", settle_s=20.0
        )
    assert caught.value.rank == 2
    assert sorted(caught.value.results) == [0, 1]
    for rank, error in caught.value.results.items():
        assert error.startswith(f"RankError: backward on rank {rank} of 3 failed")
