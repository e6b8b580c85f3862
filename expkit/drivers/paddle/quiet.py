"""Imports and starts Paddle without the notices that say nothing to a user of expkit."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FLEET_LOGGERS = ("paddle.distributed.fleet.utils.log_util", "FLEET", "root")


def import_paddle_quietly() -> None:
    """Import paddle without the hint at ccache, which matters only to those who compile it.

    Notices of its C++ side about each connection are left out too; that is read at import.
    """
    os.environ.setdefault("GLOG_minloglevel", "2")
    with _untouched_root_log(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle

    paddle.disable_signal_handler()  # SIGTERM is the trainer's to answer


@contextmanager
def _untouched_root_log() -> Iterator[None]:
    """Takes away what Paddle adds to the root of all logs, where each line would stand twice."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@contextmanager
def quiet_start() -> Iterator[None]:
    """While ranks join: no list of flags on stderr, no progress of fleet, no advice."""
    from paddle.distributed import parallel

    chatty: Any = parallel
    loggers = [logging.getLogger(name) for name in _FLEET_LOGGERS]
    levels = [logger.level for logger in loggers]
    shown = chatty._print_modified_flags
    chatty._print_modified_flags = lambda _flags: None
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with _untouched_root_log(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        chatty._print_modified_flags = shown
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
