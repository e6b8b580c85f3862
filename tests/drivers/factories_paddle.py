"""What tests on ranks are made of, in Paddle's words; what costs seconds is imported where used."""

from __future__ import annotations

import os
from functools import partial

import paddle
import paddle.distributed as dist
from paddle import nn

from expkit.drivers.paddle import PaddleDriver
from expkit.models.paddle import Mlp
from expkit.testing.steps import CLASSES
from tests.drivers.perceptron import perceptron as perceptron_of

Base = nn.Layer
BatchNorm = nn.BatchNorm1D
WRAPPER = paddle.DataParallel

COLLECTIVES = ("all_reduce", "broadcast")
"""Names in `dist` by which tensors travel."""

START = "init_parallel_env"
"""The name in `dist` by which a process joins the others."""


def replicated(**options):
    from expkit.drivers.paddle.fleet import PaddleFleetDriver

    return PaddleFleetDriver(**{"device": "cpu", "timeout_s": 30.0, **options})


def several(sync, **options):
    """The driver of several ranks by how gradients travel."""
    return replicated(gradient_sync=sync, **options)


def single(**options):
    return PaddleDriver(**{"device": "cpu", **options})


perceptron = partial(perceptron_of, Mlp)


def tensor(values):
    return paddle.to_tensor(values)


def parameter(layer, values):
    return layer.create_parameter(
        list(values.shape),
        dtype=str(values.dtype),
        default_initializer=nn.initializer.Assign(values),
    )


def freeze(layer, is_frozen=True):
    for each in layer.parameters():
        each.stop_gradient = is_frozen


def layouts():
    """Parameters of several types and shapes, for images of two channels."""

    class Layouts(nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2D(2, 3, 3)
            self.linear = nn.Linear(3, CLASSES)
            one = nn.initializer.Constant(1.0)
            self.wide = self.create_parameter([3], dtype="float64", default_initializer=one)
            self.scalar = self.create_parameter([], default_initializer=one)

        def forward(self, x):
            middle = self.conv(x).mean([2, 3]).astype("float64") * self.wide
            return self.linear(middle.astype("float32")) * self.scalar

    return Layouts()


def users_wrapper(model, how):
    """The model in Paddle's wrapper, in a group that the user has made, and what is inside."""
    os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    if how == "fleet":
        from paddle.distributed import fleet

        fleet.init(is_collective=True)
        wrapped = fleet.distributed_model(model)
    else:
        dist.init_parallel_env()
        wrapped = paddle.DataParallel(model)
    return wrapped, wrapped._layers
