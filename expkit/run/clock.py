"""Wall time that never goes back."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class WallClock:
    """Reads the system's clock once and is carried on by the monotonic one.

    Differences of its times are true durations, whatever happens to the system's clock meanwhile.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._offset = time.time() - self._started

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self._offset + time.monotonic()

    def elapsed(self) -> float:
        """Seconds since this clock was made."""
        return time.monotonic() - self._started

    def timestamp(self) -> str:
        """Now in ISO 8601, in UTC and with the offset written out."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds")
