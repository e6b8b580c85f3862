"""A context around a driver without a framework."""

from __future__ import annotations

import pytest

from expkit.core.events import Context
from expkit.core.monitor import Monitor
from expkit.core.progress import Progress
from tests.callbacks.stub_run import Clock, StubDriver


@pytest.fixture
def driver() -> StubDriver:
    return StubDriver()


@pytest.fixture
def context(driver: StubDriver) -> Context:
    return Context(
        Progress(n_epochs=2, total_steps=200, steps_per_epoch=100),
        driver,
        monitor=Monitor("accuracy"),
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()
