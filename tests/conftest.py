"""Fixtures that several directories of tests share."""

from __future__ import annotations

import signal

import pytest

# Jobs that a shell runs in the background ignore SIGINT, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

FRAMEWORKS = ("numpy", "torch", "paddle")


@pytest.fixture(params=FRAMEWORKS)
def framework(request) -> str:
    """A driver by name; skipped where its framework is not installed."""
    pytest.importorskip(request.param)
    return request.param
