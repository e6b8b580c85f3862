"""Number formats on torch: autocast for the forward, loss scaling for fp16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expkit.core.errors import ConfigError, Problem

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(precision: str, device: torch.device) -> None:
    """Raise ConfigError for a precision that is unknown or that the device cannot do."""
    if precision not in AUTOCAST:
        message = f"is {precision!r}; allowed: {', '.join(AUTOCAST)}"
        raise ConfigError([Problem("driver.precision", message, "driver.precision=bf16")])
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        message = f"is bf16, which {torch.cuda.get_device_name(device)} cannot do"
        raise ConfigError([Problem("driver.precision", message, "driver.precision=fp16")])


def autocast(function: Callable[..., Any], precision: str, device_type: str) -> Callable[..., Any]:
    """The function, computing in ``precision`` where torch knows how to."""
    dtype = AUTOCAST[precision]
    if dtype is None:
        return function
    wrapped: Callable[..., Any] = torch.autocast(device_type, dtype=dtype)(function)
    return wrapped


def unscale(gradients: list[Tensor], scale: float) -> bool:
    """Divide gradients by the loss scale, in place.

    Returns:
        Whether all of them are finite.
    """
    torch._foreach_mul_(gradients, 1.0 / scale)
    largest = torch._foreach_norm(gradients, float("inf"))
    return bool(torch.stack(list(largest)).isfinite().all())
