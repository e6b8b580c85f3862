from __future__ import annotations

from functools import partial

import pytest

from expkit.core.errors import ConfigError
from expkit.drivers.numpy import NumpyDriver
from expkit.models.numpy import Mlp
from expkit.testing import DriverSuite
from tests.drivers.perceptron import perceptron


class TestNumpyDriver(DriverSuite):
    norm = "none"  # the NumPy models have no batch normalisation

    def make_driver(self, **options):
        return NumpyDriver(**options)

    def make_model(self, **options):
        return perceptron(Mlp, **options)

    def test_a_loss_of_ones_own_is_refused_with_what_to_do(self):
        with pytest.raises(ConfigError) as caught:
            self.make_driver().prepare(self.make_model(), None, partial(squares, power=2))
        assert str(caught.value) == (
            f"loss: is {__name__}.squares; driver=numpy computes only the losses of "
            "expkit.losses, since it needs their gradient; allowed: loss=cross_entropy, "
            "binary_cross_entropy, mse, mae, huber, or a driver that differentiates a function of "
            "your own  (try: driver=torch)"
        )


def squares(outputs, batch, power):
    return ((outputs["output"] - batch["y"]) ** power).mean()
