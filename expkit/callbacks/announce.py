"""Says a line to the user, whether or not logging has been set up."""

from __future__ import annotations

import logging
import sys


def announce(log: logging.Logger, line: str) -> None:
    """Log a line at level INFO.

    In a plain script, where nothing handles the log, write it to standard error instead.
    """
    if log.hasHandlers():
        log.info(line, stacklevel=2)
    else:
        sys.stderr.write(f"{line}\n")
