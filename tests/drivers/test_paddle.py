from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.drivers.paddle import PaddleDriver
from expkit.models.paddle import Mlp
from expkit.testing import DriverSuite
from tests.drivers.perceptron import perceptron


class TestPaddleDriver(DriverSuite):
    def make_driver(self, **options):
        return PaddleDriver(**{"device": "cpu", **options})

    def make_model(self, **options):
        return perceptron(Mlp, **options)

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_low_precision_on_a_cpu_is_refused_with_the_reason(self, precision):
        with pytest.raises(ConfigError, match="no effect"):
            self.make_driver(precision=precision)
