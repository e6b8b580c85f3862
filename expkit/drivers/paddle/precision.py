"""Number formats on Paddle: auto_cast, and loss scaling for fp16; the CPU has fp32 only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from expkit.core.errors import ConfigError, Problem

AUTOCAST = {"fp32": None, "bf16": "bfloat16", "fp16": "float16"}


def check_precision(precision: str, device: str) -> None:
    """Raise ConfigError for a precision that is unknown or that the device cannot do.

    Paddle's auto_cast does nothing on a CPU but warn, so that a run would quietly stay fp32:
    refused instead.
    """
    if precision not in AUTOCAST:
        message = f"is {precision!r}; allowed: {', '.join(AUTOCAST)}"
        raise ConfigError([Problem("driver.precision", message, "driver.precision=fp32")])
    if precision != "fp32" and device == "cpu":
        message = (
            f"is {precision}, which Paddle cannot do on a CPU (auto_cast has no effect there); "
            "allowed: fp32"
        )
        raise ConfigError([Problem("driver.precision", message, "driver.precision=fp32")])


def autocast(function: Callable[..., Any], precision: str) -> Callable[..., Any]:
    """The function, computing in ``precision`` where Paddle knows how to."""
    dtype = AUTOCAST[precision]
    if dtype is None:
        return function

    def cast(*args: Any) -> Any:
        with paddle.amp.auto_cast(dtype=dtype):
            return function(*args)

    return cast


@paddle.no_grad()
def unscale(gradients: Sequence[Tensor], scale: float) -> bool:
    """Divide gradients by the loss scale, in place.

    Returns:
        Whether all of them are finite.
    """
    finite = paddle.to_tensor(True)
    for gradient in gradients:
        gradient.scale_(1.0 / scale)
        finite = paddle.logical_and(finite, paddle.isfinite(gradient).all())
    return bool(finite.item())
