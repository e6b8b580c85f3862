"""Tells the measuring process when the first optimizer step was made."""

from __future__ import annotations

import os
import time

MARK = "BENCHMARK_MARK"


_made = False


def mark() -> None:
    """Write the time of a clock that all processes of the machine share; once in each process."""
    global _made
    if not _made:
        _made = True
        with open(os.environ[MARK], "a") as file:  # noqa: PTH123 - the plainest import is measured
            file.write(f"{time.monotonic()}\n")
