"""Fixtures that several directories of tests share."""

from __future__ import annotations

import pytest

FRAMEWORKS = ("numpy", "torch", "paddle")


@pytest.fixture(params=FRAMEWORKS)
def framework(request) -> str:
    """A driver by name; skipped where its framework is not installed."""
    pytest.importorskip(request.param)
    return request.param
