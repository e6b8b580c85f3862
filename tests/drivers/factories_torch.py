"""Drivers and models of torch by name, for ranks; what a function needs is imported in it."""

from __future__ import annotations

from expkit.testing.steps import CLASSES, FEATURES


def ddp(**options):
    from expkit.drivers.torch.ddp import TorchDDPDriver

    return TorchDDPDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def fsdp(**options):
    from expkit.drivers.torch.fsdp import TorchFSDPDriver

    return TorchFSDPDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def single(**options):
    from expkit.drivers.torch import TorchDriver

    return TorchDriver(**{"device": "cpu", **options})


def perceptron(*, dropout=0.0, norm="none", hidden=(5,)):
    from expkit.models.torch import Mlp

    return Mlp(
        in_features=FEATURES,
        hidden=hidden,
        out_features=CLASSES,
        activation="tanh",
        dropout=dropout,
        norm=norm,
    )
