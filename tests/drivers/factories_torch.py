"""What tests on ranks are made of, in torch's words; what costs seconds is imported where used."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from expkit.drivers.torch import TorchDriver
from expkit.models.torch import Mlp
from expkit.testing.steps import CLASSES
from tests.drivers.perceptron import perceptron as perceptron_of

Base = nn.Module
BatchNorm = nn.BatchNorm1d
WRAPPER = nn.parallel.DistributedDataParallel

COLLECTIVES = ("all_reduce", "broadcast", "_broadcast_coalesced", "isend")
"""Names in `dist` by which tensors travel."""

START = "init_process_group"
"""The name in `dist` by which a process joins the others."""


def replicated(**options):
    from expkit.drivers.torch.ddp import TorchDDPDriver

    return TorchDDPDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def beside_an_accelerator(**options):
    """A driver that treats the host as it does beside an accelerator."""
    driver = replicated(gradient_sync="flat", **options)
    driver.group.device = torch.device("cuda", 0)
    return driver


def fsdp(**options):
    from expkit.drivers.torch.fsdp import TorchFSDPDriver

    return TorchFSDPDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def several(sync, **options):
    """The driver of several ranks by how gradients travel."""
    special = {"fsdp": fsdp, "beside an accelerator": beside_an_accelerator}
    if sync in special:
        return special[sync](**options)
    return replicated(gradient_sync=sync, **options)


def single(**options):
    return TorchDriver(**{"device": "cpu", **options})


perceptron = partial(perceptron_of, Mlp)


def tensor(values):
    return torch.as_tensor(values)


def parameter(_, values):
    return nn.Parameter(torch.from_numpy(values))


def freeze(module, is_frozen=True):
    module.requires_grad_(not is_frozen)


def layouts():
    """Parameters of several types and orders in memory, for images of two channels."""

    class Layouts(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
            self.turned = nn.Parameter(torch.randn(3, CLASSES).t())
            self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))
            self.scalar = nn.Parameter(torch.ones(()))

        def forward(self, x):
            middle = self.conv(x).mean((2, 3))
            return (middle * self.wide).float() @ self.turned.t() * self.scalar

    return Layouts()


def users_wrapper(model, how):
    """The model in torch's wrapper, in a group that the user has made, and what is inside."""
    assert how == "plain"
    dist.init_process_group("gloo")
    wrapped = nn.parallel.DistributedDataParallel(model)
    return wrapped, wrapped.module
