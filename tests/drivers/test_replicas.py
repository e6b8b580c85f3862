from __future__ import annotations

import pytest

from expkit.drivers.replicas import device_of_rank
from expkit.launch.environment import Place

SECOND_OF_TWO = Place("launcher", 1, 2, 1, 2, "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("device", "accelerators", "expected"),
    [
        ("cpu", True, "cpu"),
        ("auto", False, "cpu"),
        (-1, False, "cpu"),
        (["cpu", "cpu"], True, "cpu"),
        ("auto", True, "gpu:1"),
        (-1, True, "gpu:1"),
        ("cuda", True, "gpu:1"),
        ([0, 3], True, "gpu:3"),
    ],
)
def test_each_rank_has_its_device(device, accelerators, expected):
    def find(name):
        return {"auto": "gpu:0" if accelerators else "cpu"}.get(name, name)

    assert device_of_rank(device, SECOND_OF_TWO, find, "gpu") == expected
