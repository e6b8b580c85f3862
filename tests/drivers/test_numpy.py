from __future__ import annotations

from expkit.drivers.numpy import NumpyDriver
from expkit.models.numpy import Mlp
from tests.drivers.suite import CLASSES, FEATURES, DriverSuite


class TestNumpyDriver(DriverSuite):
    def make_driver(self, **options):
        return NumpyDriver(**options)

    def make_model(self, *, dropout=0.0, norm="none", hidden=(5,)):
        return Mlp(
            in_features=FEATURES,
            hidden=hidden,
            out_features=CLASSES,
            activation="tanh",
            dropout=dropout,
            norm=norm,
        )
