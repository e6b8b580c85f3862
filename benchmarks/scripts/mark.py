"""Tells the measuring process when the first optimizer step was made."""

from __future__ import annotations

import os
import time

MARK = "BENCHMARK_MARK"


def mark() -> None:
    """Write the time of a clock that all processes of the machine share; the first call counts."""
    path = os.environ[MARK]
    if not os.path.exists(path):  # noqa: PTH110 - the plainest import is part of what is measured
        with open(path, "w") as file:  # noqa: PTH123
            file.write(str(time.monotonic()))
