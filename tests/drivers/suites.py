"""The suite of facts for drivers of several ranks, on the ranks that other tests here have too."""

from __future__ import annotations

import pytest

from expkit.testing import DistributedSuite


class OnRanks(DistributedSuite):
    @pytest.fixture
    def pool(self, all_ranks):
        return all_ranks(self.framework, self.world_size).ready().pool


class OnTorch(OnRanks):
    framework = "torch"
    single_factory = "tests.drivers.factories_torch:single"
    model_factory = "tests.drivers.factories_torch:perceptron"
    driver_factory = "tests.drivers.factories_torch:replicated"
    scaled_precision = "fp16"


class OnPaddle(OnRanks):
    framework = "paddle"
    single_factory = "tests.drivers.factories_paddle:single"
    model_factory = "tests.drivers.factories_paddle:perceptron"
    driver_factory = "tests.drivers.factories_paddle:replicated"
