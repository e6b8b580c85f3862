"""Records the device memory in use."""

from __future__ import annotations

import logging
from typing import final

import numpy as np

from expkit.core.events import Callback, Context

log = logging.getLogger(__name__)


@final
class DeviceMemory(Callback):
    """Adds ``device_memory_bytes`` to each training record: the most used so far on any rank."""

    def fit_start(self, context: Context) -> None:
        """Say so where there is nothing to record."""
        if context.driver.memory_bytes() is None:
            log.warning("%s does not tell its memory: none is recorded", context.driver.device)

    def step_end(self, context: Context) -> None:
        """Tell the memory where a record is due."""
        if not context.log_due:
            return
        own = context.driver.memory_bytes()
        if own is not None:
            greatest = context.driver.all_reduce(np.array([own], dtype=np.int64), "max")
            context.log({"device_memory_bytes": int(greatest[0])})
