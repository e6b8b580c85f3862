"""The drivers of several ranks, on two and three processes."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import pytest

from expkit.testing import DistributedSuite

pytestmark = pytest.mark.slow

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
needs_paddle = pytest.mark.skipif(
    importlib.util.find_spec("paddle") is None, reason="Paddle is not installed"
)


class OnTorch(DistributedSuite):
    framework = "torch"
    single_factory = "tests.drivers.factories_torch:single"
    model_factory = "tests.drivers.factories_torch:perceptron"
    driver_factory = "tests.drivers.factories_torch:ddp"
    scaled_precision = "fp16"


class OnPaddle(DistributedSuite):
    framework = "paddle"
    single_factory = "tests.drivers.factories_paddle:single"
    model_factory = "tests.drivers.factories_paddle:perceptron"
    driver_factory = "tests.drivers.factories_paddle:fleet"


@needs_torch
class TestTorchFlatOnTwo(OnTorch):
    world_size = 2
    options: ClassVar = {"gradient_sync": "flat"}


@needs_torch
class TestTorchNativeOnTwo(OnTorch):
    world_size = 2
    options: ClassVar = {"gradient_sync": "native"}


@needs_torch
class TestTorchFSDPOnTwo(OnTorch):
    world_size = 2
    driver_factory = "tests.drivers.factories_torch:fsdp"
    scaled_precision = None


@needs_torch
class TestTorchFlatOnThree(OnTorch):
    world_size = 3
    options: ClassVar = {"gradient_sync": "flat"}


@needs_paddle
class TestPaddleFlatOnTwo(OnPaddle):
    world_size = 2
    options: ClassVar = {"gradient_sync": "flat"}


@needs_paddle
class TestPaddleNativeOnTwo(OnPaddle):
    world_size = 2
    options: ClassVar = {"gradient_sync": "native"}


@needs_paddle
class TestPaddleFlatOnThree(OnPaddle):
    world_size = 3
    options: ClassVar = {"gradient_sync": "flat"}
