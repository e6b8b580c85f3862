"""Which devices ranks compute on, and what is refused."""

from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.launch.devices import count_accelerators, ranks_of


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")


@pytest.fixture
def none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), ("-1", 0), ("0", 1), ("3,1", 2), ("0,-1,2", 1), ("GPU-8f2,MIG-77a", 2), ("0, 1", 2)],
)
def test_devices_are_counted_as_cuda_does(visible, count):
    assert count_accelerators({"CUDA_VISIBLE_DEVICES": visible}) == count


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("num_processes", "device", "ranks"),
    [
        (None, "auto", ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]),
        (None, -1, ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]),
        (2, "cuda", ["gpu:0", "gpu:1"]),
        (None, [3, 1], ["gpu:3", "gpu:1"]),
        (2, [3, 1], ["gpu:3", "gpu:1"]),
        (None, [2], ["gpu:2"]),
        (None, "cpu", ["cpu", "cpu"]),
        (3, "cpu", ["cpu", "cpu", "cpu"]),
    ],
)
def test_ranks_get_their_devices_in_order(num_processes, device, ranks):
    assert ranks_of(num_processes, device) == ranks


@pytest.mark.usefixtures("none")
def test_without_accelerators_there_are_two_ranks_on_the_cpu():
    assert ranks_of(None, "auto") == ranks_of(None, -1) == ["cpu", "cpu"]
    assert ranks_of(4, "auto") == ["cpu"] * 4


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("num_processes", "device", "key", "words"),
    [
        (None, [0, 0], "driver.device", "twice"),
        (None, [0, -2], "driver.device", "-2"),
        (None, [0, "1"], "driver.device", "'1'"),
        (None, [0, True], "driver.device", "True"),
        (None, [0, 4], "driver.device", "4 devices"),
        (None, [], "driver.device", "empty"),
        (3, [0, 1], "driver.device", "2 devices"),
        (None, 2, "driver.device", "list"),
        (None, "cuda:1", "driver.device", "list"),
        (None, True, "driver.device", "True"),
        (None, "tpu", "driver.device", "'tpu'"),
        (None, None, "driver.device", "None"),
        (5, "auto", "driver.num_processes", "4 devices"),
        (0, "cpu", "driver.num_processes", "0"),
        ("2", "cpu", "driver.num_processes", "'2'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(num_processes, device, key, words):
    with pytest.raises(ConfigError) as caught:
        ranks_of(num_processes, device)
    [problem] = caught.value.problems
    assert problem.key == key
    assert words in problem.message
    assert problem.hint


@pytest.mark.usefixtures("none")
@pytest.mark.parametrize("device", ["cuda", "gpu", [0]])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ConfigError, match=r"driver\.device"):
        ranks_of(None, device)
