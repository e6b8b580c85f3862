"""Where torch computes, and how batches get there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from expkit.core.batch import map_leaves
from expkit.core.errors import ConfigError, Problem


def find_device(name: Any) -> torch.device:
    """The device that a config names.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``gpu`` (with ``:N`` for one of several), ``mps``.

    Raises:
        ConfigError: not a device, or not there.
    """
    allowed = "allowed: auto, cpu, cuda, cuda:N, mps"
    if not isinstance(name, str):
        message = (
            f"is {name!r}; {allowed} (a list of devices is for drivers with several processes)"
        )
        raise ConfigError([Problem("driver.device", message, "driver.device=auto")])
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name.replace("gpu", "cuda"))
    except RuntimeError:
        raise ConfigError(
            [Problem("driver.device", f"is {name!r}; {allowed}", "driver.device=auto")]
        ) from None
    if device.type == "cuda":
        there = torch.cuda.device_count()
        if (device.index or 0) >= there:
            message = f"is {name!r}, but torch sees {there} CUDA devices"
            raise ConfigError([Problem("driver.device", message, "driver.device=cpu")])
        return torch.device("cuda", device.index or 0)
    if device.type == "mps" and not torch.backends.mps.is_available():
        message = "is 'mps', which this machine does not have"
        raise ConfigError([Problem("driver.device", message, "driver.device=cpu")])
    if device.type not in ("cpu", "mps"):
        raise ConfigError(
            [Problem("driver.device", f"is {name!r}; {allowed}", "driver.device=auto")]
        )
    return device


def to_device(fields: Any, device: torch.device) -> Any:
    """Numeric arrays and tensors of a batch as tensors on the device, at any depth; the rest as is.

    On the CPU an array and its tensor share memory.
    """
    on_host = device.type == "cpu"

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufc":
                return value
            tensor = torch.from_numpy(value if value.flags.writeable else value.copy())
            return tensor if on_host else tensor.to(device, non_blocking=True)
        if isinstance(value, torch.Tensor):
            return value.to(device, non_blocking=True)
        return value

    return map_leaves(fields, convert)
