"""What holds on several ranks besides the facts of `DistributedSuite`, whatever the framework."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest

from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.launch.environment import Place
from expkit.testing import RanksError
from tests.drivers.on_ranks import factories

pytestmark = pytest.mark.slow

frameworks = pytest.mark.parametrize("framework", ["torch", "paddle"])

REPLICATED = [("torch", "flat"), ("torch", "native"), ("paddle", "flat"), ("paddle", "native")]
BESIDE = ("torch", "beside an accelerator")  # what ranks tell then travels on the host
SHARDED = ("torch", "fsdp")


def kinds(*pairs):
    return pytest.mark.parametrize(("framework", "sync"), pairs, ids=map(" ".join, pairs))


@pytest.fixture(autouse=True)
def installed(framework):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


# -- gradients -------------------------------------------------------------------------------------


@kinds(*REPLICATED, BESIDE, SHARDED)
def test_gradients_are_exchanged_at_the_end_of_a_window(two, sync):
    """Case 25."""
    assert two.agree("unequal_windows", sync=sync) == -5.0


@kinds(*REPLICATED, BESIDE, SHARDED)
def test_clipping_is_done_once_on_the_sum_over_window_and_ranks(two, sync):
    """Case 29."""
    found, norm = two.agree("clipped", sync=sync)
    assert found == pytest.approx([0.99123, 0.13216], abs=1e-5)
    assert norm == pytest.approx((36 + 0.64) ** 0.5)


@kinds(*REPLICATED, BESIDE)
def test_types_and_orders_in_memory_may_be_mixed(two, sync):
    difference, _ = two.agree("layouts", sync=sync)
    assert difference < 1e-6


@kinds(*REPLICATED, SHARDED)
def test_rank_0_alone_keeps_the_model_for_a_checkpoint_and_each_its_generators(two, sync):
    assert two.run("kept_for_a_checkpoint", sync=sync) == [[4, 1, True], [0, 0, True]]


@frameworks
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_step_has_one_collective_at_the_windows_end(all_ranks, framework, world_size, norm):
    """It carries gradients, statistics and flags."""
    ranks = all_ranks(framework, world_size).ready()
    early, in_all = ranks.agree("traffic", norm=norm)
    assert early == [0, 0, 0]
    assert in_all == [1, 1, 1]


# -- unused and frozen parameters ------------------------------------------------------------------

HINTS = {
    "fsdp": "driver=torch_ddp driver.find_unused_parameters=true",
    "flat": "driver.find_unused_parameters=true",
}


@kinds(*REPLICATED, BESIDE, SHARDED)
def test_an_unused_head_is_named_with_the_option(two, sync):
    """Case 133 a."""
    for error, _ in two.run("unused_head", sync=sync, unused=False):
        assert "head.weight, head.bias" in error
        assert HINTS.get(sync, HINTS["flat"]) in error


@kinds(*REPLICATED)
def test_with_the_option_an_unused_head_is_left_alone(two, sync):
    """Case 133 a, the second part."""
    error, unchanged = two.agree("unused_head", sync=sync, unused=True)
    assert error is None
    assert unchanged == ["head.bias", "head.weight"]


@kinds(*REPLICATED, BESIDE)
def test_a_layer_of_an_early_micro_batch_is_exchanged(two, sync):
    """Case 35."""
    difference, _ = two.agree("early_layer", sync=sync)
    assert difference < 1e-6


@kinds(*REPLICATED)
def test_a_layer_that_one_rank_uses_is_updated_on_all(two, sync):
    difference, _ = two.agree("used_on_one_rank", sync=sync, unused=True)
    assert difference < 1e-6


@frameworks
def test_a_layer_that_one_of_three_ranks_uses_is_updated_on_all(three):
    difference, _ = three.agree("used_on_one_rank", sync="flat", unused=True)
    assert difference < 1e-6


@frameworks
def test_a_layer_that_one_rank_uses_is_an_error_on_all_without_the_option(two):
    errors = [error for error, _ in two.run("used_on_one_rank", sync="flat", unused=False)]
    assert all(error.startswith("DriverError: ") for error in errors)
    assert "on rank 1 " in errors[1]
    assert "b.weight" in errors[1]


frozen_before_and_later = pytest.mark.parametrize(
    ("when", "moved"), [("before", [False] * 3), ("later", [True, False, True])]
)


@kinds(*REPLICATED, BESIDE, SHARDED)
@frozen_before_and_later
def test_a_backbone_may_be_frozen_and_trained_again(two, sync, when, moved):
    """Case 133 b, c."""
    difference, found, _ = two.agree("frozen", sync=sync, when=when, unused=False)
    assert difference < 1e-6
    assert found == moved


@kinds(*REPLICATED, BESIDE)
@frozen_before_and_later
def test_it_may_be_where_unused_parameters_are_looked_for(two, sync, when, moved):
    difference, found, _ = two.agree("frozen", sync=sync, when=when, unused=True)
    assert difference < 1e-6
    assert found == moved


@kinds(*REPLICATED, SHARDED)
def test_what_one_rank_freezes_alone_is_found_out_on_all(two, sync):
    for error in two.run("frozen_on_one_rank", sync=sync):
        assert error.startswith("DriverError: ")
        assert "freeze" in error or "do not train the same parameters" in error


# -- buffers ---------------------------------------------------------------------------------------


@kinds(*REPLICATED, BESIDE, SHARDED)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_buffers_follow_the_mean_over_ranks_and_constants_stay_to_the_bit(two, sync, accumulate):
    found = two.agree("buffers", sync=sync, accumulate=accumulate)
    # Both begin as on rank 0. In two windows rank r adds r + 1 for each micro-batch.
    assert found["replaced"] == found["changed"] == [2 * accumulate * 1.5] * 2
    assert found["counter"] == [2 * accumulate]  # of what is no floating-point number rank 0's
    assert found["batches"] == ([4 * accumulate] if two.framework == "torch" else [])


# -- options ---------------------------------------------------------------------------------------


@frameworks
def test_what_ranks_cannot_send_is_refused(two):
    array, source, model = two.run("refused")[0]
    assert "allowed: float64, int64" in array
    assert "allowed: ranks 0 to 1" in source
    assert "the ranks have built different models: ranks [1]" in model


@frameworks
def test_the_wrapper_reaches_train_step(two):
    assert two.agree("own_steps") == -1.0


@frameworks
def test_auto_chooses_by_the_size_of_the_gradients(two):
    large = 2600  # 26 MB of weights
    asked = [
        [8, {}],
        [large, {}],
        [large, {"find_unused_parameters": True}],
        [8, {"data_parallel": ARGUMENT[two.framework]}],
    ]
    names = [name for name, *_ in two.agree("choices", asked=asked)]
    assert names == ["FlatExchange", "NativeExchange", "FlatExchange", "NativeExchange"]


ARGUMENT = {"torch": {"bucket_cap_mb": 1}, "paddle": {"comm_buffer_size": 1}}


@frameworks
def test_options_without_effect_are_refused(framework):
    argument = ARGUMENT[framework]
    for options, said in (
        ({"gradient_sync": "best"}, "gradient_sync: is 'best'; allowed: auto, flat, native"),
        ({"gradient_sync": "flat", "data_parallel": argument}, "data_parallel: has no effect"),
        ({"data_parallel": {"wrong": 1}}, "data_parallel.wrong: is no option; allowed: "),
    ):
        with pytest.raises(ConfigError) as caught:
            factories(framework).replicated(**options)
        assert f"driver.{said}" in str(caught.value)


# -- devices ---------------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "is 'tpu'"),
        (["cpu"], r"is \['cpu'\], which leaves nothing for rank 1 of this machine"),
        ([0, 99], "sees"),
        ("cpu:1", "one device for 2 ranks"),
    ],
)
def test_a_device_that_cannot_be_is_refused(framework, device, message):
    rendezvous = importlib.import_module(f"expkit.drivers.{framework}.rendezvous")
    with pytest.raises(ConfigError, match=message) as caught:
        rendezvous.device_of_rank(device, Place("launcher", 1, 2, 1, 2, "127.0.0.1", 1))
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert problem.key == "driver.device"


# -- joining ---------------------------------------------------------------------------------------


@frameworks
def test_without_a_launcher_the_error_says_how_to_start(framework, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "PADDLE_TRAINER_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DriverError, match=r"`python -m expkit driver=(torch_ddp|paddle_fleet) "):
        factories(framework).replicated()


@frameworks
def test_a_wrapped_model_needs_the_driver_for_it(framework):
    fw = factories(framework)

    class Wrapped:
        __class__ = fw.WRAPPER

    with pytest.raises(ConfigError, match=r"driver=(torch_ddp|paddle_fleet)"):
        fw.single().prepare(Wrapped(), None, None)


@frameworks
def test_ranks_of_one_machine_cannot_be_reached_from_another(two):
    for addresses in two.run("listeners"):
        assert set(addresses) <= {"0100007F"}  # the loopback
        assert bool(addresses) == (two.framework == "torch")  # Paddle's ranks let nobody in at all


@frameworks
def test_a_process_joins_once(unjoined):
    """Case 127."""
    for weight, starts, errors in unjoined.run("joins_once"):
        assert weight == -2.0
        assert starts == 1
        keys = [re.match(r"ConfigError: (driver\.\w+):", error)[1] for error in errors]
        assert keys == ["driver.backend", *["driver.device"] * 3]
        assert "is 'tpu'" in errors[1]
        assert "leaves nothing for rank" in errors[2]
        assert "has joined the other ranks with cpu" in errors[3]


# -- a rank that is gone ---------------------------------------------------------------------------

SETTLE_S = 20.0
"""The others notice sooner than after their timeout of 30 s."""


@frameworks
def test_collectives_tell_that_a_rank_is_gone(doomed):
    with pytest.raises(RanksError) as caught:
        doomed.run("last_rank_leaves", settle_s=SETTLE_S)
    assert caught.value.rank == 1  # who died is blamed
    (errors,) = caught.value.results.values()
    for error, what in zip(errors, ("of tensors", "barrier", "all_gather"), strict=True):
        assert re.match(rf"RankError: .*{what}.* rank 0 of 2", error)
        assert "gone" in error


@pytest.mark.parametrize(
    ("framework", "how"), [("torch", "plain"), ("paddle", "plain"), ("paddle", "fleet")]
)
def test_the_users_group_and_wrapped_model_are_taken_as_they_are(unjoined, how):
    found = unjoined.agree("users_model", how=how)
    assert found["state"] == {"w": [-5.0]}
    assert found["plain"]
    (warning,) = found["warnings"]
    assert "cannot reach train_step" in warning
    assert found["output"] == [-5.0]
    assert found["gathered"] == [0, 1]


@kinds(("torch", "native"), ("paddle", "native"))
def test_a_rank_that_dies_during_the_backward_hangs_nobody(doomed, sync):
    with pytest.raises(RanksError) as caught:
        doomed.run("last_rank_leaves_before_the_backward", sync=sync, settle_s=SETTLE_S)
    assert "did not answer in time" not in caught.value.failures.values()
    if doomed.framework == "torch":  # Paddle's wrapper ends the process
        assert caught.value.rank == 1
        (error,) = caught.value.results.values()
        assert re.match(r"RankError: sum of gradients on rank 0 of 2 failed", error)
