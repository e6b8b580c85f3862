"""The Paddle driver."""

from expkit.drivers.paddle.quiet import import_paddle_quietly

import_paddle_quietly()

from expkit.drivers.paddle.driver import PaddleDriver  # noqa: E402 - the notices must be silenced before paddle speaks
from expkit.drivers.paddle.fleet import PaddleFleetDriver  # noqa: E402

__all__ = ["PaddleDriver", "PaddleFleetDriver"]
