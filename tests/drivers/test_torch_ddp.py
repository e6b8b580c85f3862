"""torch_ddp on real ranks: exact sums, one exchange a step, nothing that hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.drivers.torch import TorchDDPDriver, TorchDriver
from expkit.drivers.torch.rendezvous import device_of_rank
from expkit.launch.environment import Place
from expkit.testing import RankPool, RanksError

pytestmark = pytest.mark.slow

CHECKS = "tests.drivers.torch_checks"
SYNCS = ["flat", "native"]


@pytest.fixture(scope="module")
def two():
    with RankPool("torch", 2) as pool:
        yield pool


@pytest.fixture(scope="module")
def three():
    with RankPool("torch", 3) as pool:
        yield pool


def run(pool, name, **kwargs):
    return pool.run(f"{CHECKS}:{name}", **kwargs)


def same(results):
    """What all ranks answered."""
    assert all(result == results[0] for result in results), results
    return results[0]


# -- exact gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
class TestGradients:
    def test_ranks_update_alike_after_a_window(self, two, sync):
        assert same(run(two, "case_25", sync=sync)) == -5.0

    def test_a_rank_with_few_samples_counts_less(self, two, sync):
        gradient, losses = same(run(two, "case_27", sync=sync))
        assert gradient == 2.0
        assert losses == 4

    def test_a_rank_of_nothing_but_filling_changes_nothing(self, two, sync):
        assert same(run(two, "weight_zero", sync=sync)) == 4.0

    def test_clipping_is_on_the_sum_over_window_and_ranks(self, two, sync):
        clipped, norm = same(run(two, "case_29", sync=sync))
        assert clipped == pytest.approx([0.99123, 0.13216], abs=1e-5)
        assert norm == pytest.approx((36 + 0.64) ** 0.5)

    def test_a_mean_over_tokens_is_over_those_of_all_ranks(self, two, sync):
        assert same(run(two, "token_weights", sync=sync)) < 1e-6

    def test_two_ranks_equal_one(self, two, sync):
        difference, _ = same(run(two, "equals_one_rank", sync=sync))
        assert difference < 1e-6

    def test_types_and_orders_in_memory_may_be_mixed(self, two, sync):
        difference, _ = same(run(two, "layouts", sync=sync))
        assert difference < 1e-6

    def test_an_overflow_on_one_rank_leaves_the_update_out_on_all(self, two, sync):
        applied, weight, again, scale = run(two, "overflow", sync=sync)[0]
        assert (applied, weight, again, scale) == (False, 0.0, True, 512.0)
        assert run(two, "overflow", sync=sync)[1][:3] == [False, 0.0, True]


def test_three_ranks_equal_one(three):
    assert same(run(three, "equals_one_rank", sync="flat"))[0] < 1e-6
    assert same(run(three, "token_weights", sync="flat")) < 1e-6
    assert same(run(three, "used_on_one_rank", sync="flat", unused=True))[0] < 1e-6


def test_the_schedule_advances_once_for_each_update(two):
    assert same(run(two, "case_31")) == 0.00390625


# -- what is communicated --------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("ranks", ["two", "three"])
def test_a_step_has_one_collective_and_none_before_the_windows_end(request, ranks, norm):
    pool = request.getfixturevalue(ranks)
    early, steps = same(run(pool, "traffic", sync="flat", norm=norm))
    assert early == [0, 0, 0]
    assert steps == [1, 1, 1]


@pytest.mark.parametrize("sync", SYNCS)
def test_flags_of_one_rank_are_seen_by_all_after_the_next_exchange(two, sync):
    seen, agreed = same(run(two, "flags", sync=sync))
    assert seen == [
        [False, False],  # before any exchange
        [False, False],
        [False, False],  # raised on the last rank, not exchanged yet
        [False, True],
        [True, False],
        [False, False],
        [False],  # other flags are watched
        [False],
    ]
    assert agreed == [True, False]


def test_collectives(two):
    results = run(two, "collectives")
    for result in results:
        assert result["exact"] == 2**53 + 3
        assert result["fine"] == 1 + 2.0**-40
        assert result["extremes"] == [0.0, 1.0]
        assert result["shape"] == [2, 0, 3]
        assert result["scalar"] == 3
        assert result["nested"] == [[0, 0, 0], [1, 1, 100_000]]
        assert result["from_each"] == [0, 1]
        assert result["after"] == "fine"
        assert result["any"] == [True, False]
        assert "allowed: sum, min, max" in result["refused"][0]
        assert "allowed: float64, int64" in result["refused"][1]
        assert "allowed: ranks 0 to 1" in result["refused"][2]
    assert [result["error"] for result in results] == [
        "OSError: no space",
        "RankError: rank 0 failed: OSError: no space",
    ]


# -- unused and frozen parameters ------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
class TestUnused:
    def test_an_unused_head_is_named_with_the_option(self, two, sync):
        for error, _ in run(two, "unused_head", sync=sync, unused=False):
            assert "head.weight, head.bias" in error
            assert "driver.find_unused_parameters=true" in error

    def test_with_the_option_it_is_left_alone(self, two, sync):
        error, unchanged = same(run(two, "unused_head", sync=sync, unused=True))
        assert error is None
        assert unchanged == ["head.weight", "head.bias"]

    def test_a_layer_of_an_early_micro_batch_is_exchanged(self, two, sync):
        assert same(run(two, "case_35", sync=sync))[0] < 1e-6

    def test_a_layer_that_one_rank_uses_is_updated_on_all(self, two, sync):
        assert same(run(two, "used_on_one_rank", sync=sync, unused=True))[0] < 1e-6

    @pytest.mark.parametrize("when", ["before", "later"])
    @pytest.mark.parametrize("unused", [False, True])
    def test_a_backbone_may_be_frozen(self, two, sync, when, unused):
        assert same(run(two, "frozen", sync=sync, when=when, unused=unused))[0] < 1e-6

    def test_what_one_rank_freezes_alone_is_found_out(self, two, sync):
        for error in run(two, "frozen_on_one_rank", sync=sync):
            assert "freeze" in error
            assert error.startswith("DriverError")


def test_a_layer_that_one_rank_uses_is_named_on_the_other(two):
    errors = [error for error, _ in run(two, "used_on_one_rank", sync="flat", unused=False)]
    assert "b.weight" not in errors[0]
    assert "b.weight" in errors[1]


def test_sparse_gradients_need_the_wrapper(two):
    for error in run(two, "sparse", sync="flat"):
        assert "driver.gradient_sync=native" in error
    assert run(two, "sparse", sync="native") == [None, None]


def test_beside_an_accelerator_what_ranks_tell_travels_on_the_host(two):
    assert same(run(two, "equals_one_rank", sync="device"))[0] < 1e-6
    assert same(run(two, "flags", sync="device")) == same(run(two, "flags", sync="flat"))
    for unused in (False, True):
        assert same(run(two, "frozen", sync="device", when="later", unused=unused))[0] < 1e-6
    assert same(run(two, "case_35", sync="device"))[0] < 1e-6
    assert same(run(two, "buffers", sync="device"))["late"] == [3.0, 3.0]
    for error, _ in run(two, "unused_head", sync="device", unused=False):
        assert "head.weight, head.bias" in error


# -- buffers and states ----------------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_buffers_follow_the_mean_over_ranks(two, sync, accumulate):
    result = same(run(two, "buffers", sync=sync, accumulate=accumulate))
    assert result["worst"] < 1e-6
    # Rank 0 adds 1 in each forward of the last two windows, rank 1 adds 2.
    assert result["late"] == [2 * accumulate * 1.5] * 2
    assert result["counter"] == 2 * accumulate
    assert result["batches"] == 4 * accumulate


@pytest.mark.parametrize("sync", SYNCS)
def test_a_state_is_complete_on_rank_0_and_loads_anywhere(two, sync):
    first, second = run(two, "state_round_trip", sync=sync)
    assert first["keys"] == [
        "layers.linear_0.bias",
        "layers.linear_0.weight",
        "layers.output.bias",
        "layers.output.weight",
    ]
    assert second["keys"] == []
    for result in (first, second):
        assert result["same"]
        assert result["different draws"] == 2
        assert result["loads on one"]


def test_all_ranks_start_with_the_weights_of_rank_0(two):
    for is_same, error in run(two, "same_start"):
        assert is_same
        assert "ranks [1] have other parameters" in error


# -- joining ---------------------------------------------------------------------------------------


def test_a_second_driver_joins_the_same_group(two):
    for weight, errors in run(two, "joins_once"):
        assert weight == -2.0
        assert "driver.backend: is mpi" in errors[0]
        assert "driver.device: is 'meta'" in errors[1]
        assert "has joined the other ranks with cpu" in errors[3]
    assert "driver.device: is ['cpu'], but rank 1" in errors[2]


def test_ranks_of_one_machine_listen_on_the_loopback_only(two):
    for addresses in run(two, "listeners"):
        assert addresses
        assert set(addresses) == {"0100007F"}


def test_the_wrapper_reaches_train_step(two):
    assert same(run(two, "steps_through_native")) == -1.0


def test_a_static_graph_needs_windows_of_one(two):
    weight, error = same(run(two, "static_graph"))
    assert weight == -1.0
    assert "driver.data_parallel.static_graph" in error


def test_options_that_cannot_work_are_refused(two):
    errors = same(run(two, "options"))
    assert "driver.gradient_sync: is 'best'; allowed: auto, flat, native" in errors[0]
    assert "has no effect" in errors[1]
    assert "driver.data_parallel.bucket_cap: is no option; allowed: bucket_cap_mb" in errors[2]
    assert "driver.data_parallel.broadcast_buffers" in errors[3]
    assert "one device for 2 ranks" in errors[4]


def test_auto_chooses_by_the_size_of_the_gradients(two):
    assert same(run(two, "choices")) == [
        "FlatExchange",
        "NativeExchange",
        "FlatExchange",
        "NativeExchange",
    ]


def test_the_users_group_and_wrapped_model_are_taken_as_they_are():
    with RankPool("torch", 2) as pool:
        for result in run(pool, "user_wrapped"):
            assert result["state"] == {"w": [-5.0]}
            assert result["plain"]
            assert result["output"] == [-5.0]
            assert result["alive"]
            (warning,) = result["warnings"]
            assert "cannot reach train_step" in warning
        # The death of a rank during the backward of a wrapper.
        with pytest.raises(RanksError) as caught:
            run(pool, "native_rank_error")
        (error,) = caught.value.results.values()
        assert error.startswith("RankError: sum of gradients on rank 0 of 2 failed")


def test_the_death_of_a_rank_is_told_by_the_others():
    with RankPool("torch", 2) as pool:
        with pytest.raises(RanksError) as caught:
            run(pool, "rank_errors")
        assert caught.value.rank == 1
        (errors,) = caught.value.results.values()
        assert errors[0].startswith("RankError: sum of tensors on rank 0 of 2 failed")
        assert errors[1].startswith("RankError: barrier on rank 0 of 2 failed")
        assert errors[2].startswith("RankError: all_gather on rank 0 of 2 failed")


def test_a_rank_that_does_not_come_in_time_is_told_with_the_timeout(tmp_path):
    with RankPool("torch", 2) as pool:
        _, error = run(pool, "late", directory=str(tmp_path))
    assert error.startswith("RankError: barrier on rank 1 of 2 failed")
    assert "driver.timeout_s=1" in error


def test_without_a_launcher_the_error_says_how_to_start(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "PADDLE_TRAINER_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DriverError, match=r"driver=torch_ddp.*torchrun"):
        TorchDDPDriver(device="cpu")


def test_a_wrapped_model_needs_the_driver_for_it():
    class Wrapped:
        __class__ = __import__("torch").nn.parallel.DistributedDataParallel

    driver = TorchDriver(device="cpu")
    with pytest.raises(ConfigError, match="driver=torch_ddp"):
        driver.prepare(Wrapped(), None, None)


RANK = """
import numpy as np
from expkit.drivers.torch import TorchDDPDriver
driver = TorchDDPDriver(device="cpu", timeout_s=10)
assert driver.group.all_reduce(np.array([3])).tolist() == [3]
print(driver.world_size)
"""


def test_a_supervised_rank_0_serves_the_store_on_the_socket_that_it_inherits():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        variables = {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(listening.getsockname()[1]),
            "EXPKIT_CONTROL_FD": "1",
            "EXPKIT_STORE_FD": str(listening.fileno()),
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", RANK],
            env=os.environ | variables,
            pass_fds=[listening.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def place(local_rank, local_world_size=2):
    return Place("torchrun", local_rank, 2, local_rank, local_world_size, "127.0.0.1", 1)


@pytest.mark.parametrize("device", ["cpu", "auto", -1, ["cpu", "cpu"]])
def test_each_rank_has_its_device(device):
    if device in ("auto", -1) and __import__("torch").cuda.is_available():
        assert str(device_of_rank(device, place(1))) == "cuda:1"
    else:
        assert str(device_of_rank(device, place(1))) == "cpu"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "is 'tpu'"),
        (["cpu"], "rank 1 of this machine needs one more"),
        ([0, 99], "torch sees"),
        ("cpu:1", "one device for 2 ranks"),
    ],
)
def test_a_device_that_cannot_be_is_refused(device, message):
    with pytest.raises(ConfigError, match=message) as caught:
        device_of_rank(device, place(1))
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert problem.key == "driver.device"
