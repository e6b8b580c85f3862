"""torch_ddp: the facts about drivers of several ranks, and what only it has."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import ClassVar

import pytest

pytest.importorskip("torch")

from expkit.core.errors import ConfigError
from tests.drivers import factories_torch
from tests.drivers.suites import OnTorch

pytestmark = pytest.mark.slow


class TestFlatOnTwo(OnTorch):
    world_size = 2
    options: ClassVar = {"gradient_sync": "flat"}


class TestNativeOnTwo(OnTorch):
    world_size = 2
    options: ClassVar = {"gradient_sync": "native"}


class TestBesideAnAcceleratorOnTwo(OnTorch):
    """What ranks tell each other travels apart from the gradients."""

    world_size = 2
    driver_factory = "tests.drivers.factories_torch:beside_an_accelerator"


class TestFlatOnThree(OnTorch):
    world_size = 3
    options: ClassVar = {"gradient_sync": "flat"}


@pytest.fixture
def framework():
    return "torch"


def test_sparse_gradients_need_the_wrapper(two):
    for error in two.run("on_torch_ranks.sparse", sync="flat"):
        assert "driver.gradient_sync=native" in error
    assert two.agree("on_torch_ranks.sparse", sync="native") is None


def test_a_static_graph_needs_windows_of_one(two):
    weight, error = two.agree("on_torch_ranks.static_graph")
    assert weight == -1.0
    assert "driver.data_parallel.static_graph" in error


def test_a_process_keeps_its_backend(two):
    for error in two.agree("on_torch_ranks.backends"):
        assert "has joined the other ranks over gloo" in error


def test_what_the_driver_sets_itself_is_no_option_of_the_wrapper():
    with pytest.raises(ConfigError, match=r"driver\.data_parallel\.broadcast_buffers"):
        factories_torch.replicated(data_parallel={"broadcast_buffers": True})


def test_a_rank_that_does_not_come_in_time_is_told_with_the_timeout(unjoined, tmp_path):
    _, error = unjoined.run("on_torch_ranks.late", directory=str(tmp_path), limit_s=1.0)
    assert error.startswith("RankError: barrier on rank 1 of 2 failed")
    assert "driver.timeout_s=1" in error


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
