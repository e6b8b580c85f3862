"""Where Paddle computes, and how batches get there."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from expkit.core.batch import map_leaves
from expkit.core.errors import ConfigError, Problem


def find_device(name: Any) -> str:
    """The device that a config names, as Paddle names it.

    Args:
        name: ``auto``, ``cpu``, ``gpu`` or ``cuda`` (with ``:N`` for one of several).

    Raises:
        ConfigError: not a device, or not there.
    """
    allowed = "allowed: auto, cpu, gpu, gpu:N"
    if not isinstance(name, str):
        message = (
            f"is {name!r}; {allowed} (a list of devices is for drivers with several processes)"
        )
        raise ConfigError([Problem("driver.device", message, "driver.device=auto")])
    there = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    if name == "auto":
        return "gpu:0" if there else "cpu"
    kind, _, index = name.replace("cuda", "gpu").partition(":")
    if kind == "cpu" and not index:
        return "cpu"
    if kind != "gpu" or (index and not index.isdigit()):
        raise ConfigError(
            [Problem("driver.device", f"is {name!r}; {allowed}", "driver.device=auto")]
        )
    if int(index or 0) >= there:
        message = f"is {name!r}, but this Paddle sees {there} GPUs"
        raise ConfigError([Problem("driver.device", message, "driver.device=cpu")])
    return f"gpu:{int(index or 0)}"


def to_device(fields: Any, device: str) -> Any:
    """Numeric arrays of a batch as tensors on the device, at any depth; all else as it is.

    On the CPU an array and its tensor share memory.

    Args:
        fields: of the batch.
        device: as Paddle names it, and Paddle's present one.
    """
    on_host = device == "cpu"

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
            return value
        if on_host and value.flags.carray:  # writeable and contiguous
            return paddle.from_dlpack(value)
        return paddle.to_tensor(value)

    return map_leaves(fields, convert)
