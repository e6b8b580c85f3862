"""Drivers and models of Paddle by name, for ranks; what a function needs is imported in it."""

from __future__ import annotations

from expkit.testing.steps import CLASSES, FEATURES


def fleet(**options):
    from expkit.drivers.paddle.fleet import PaddleFleetDriver

    return PaddleFleetDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def single(**options):
    from expkit.drivers.paddle import PaddleDriver

    return PaddleDriver(**{"device": "cpu", **options})


def perceptron(*, dropout=0.0, norm="none", hidden=(5,)):
    from expkit.models.paddle import Mlp

    return Mlp(
        in_features=FEATURES,
        hidden=hidden,
        out_features=CLASSES,
        activation="tanh",
        dropout=dropout,
        norm=norm,
    )
