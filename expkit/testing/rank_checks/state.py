"""State, seeds and the life of a driver on ranks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from expkit.core.batch import Batch
from expkit.core.errors import DriverError
from expkit.testing.rank_checks.subject import Description, NamedSubject, loss_of, optimizer_of
from expkit.testing.steps import batch_of, step


def first_weights(subject: Description, norm: str) -> dict[str, Any]:
    """The state after ``prepare``, where each rank has initialised its model otherwise."""
    named = NamedSubject(**subject)
    driver = named.make_driver()
    driver.setup(0)
    model = named.make_model(norm=norm)
    model.initialize(driver.rank)
    driver.prepare(model, optimizer_of({"name": "adam", "lr": 0.01}), loss_of(None))
    state = driver.model_state()
    driver.shutdown()
    return state


def random_streams(subject: Description) -> dict[str, Any]:
    """What the generators of a rank give, also after going back by a state and by ``setup``.

    Dropout is seen by its effect on a loss.
    """
    driver = NamedSubject(**subject).prepared(dropout=0.5, hidden=(64,))
    driver.setup(0)  # making the model has drawn numbers

    def draw() -> list[float]:
        batch = batch_of(range(16))
        lost = driver.read_losses([driver.loss(driver.forward(batch, False), batch)])[0, 0]
        return [random.random(), np.random.random_sample(), float(lost)]

    state = driver.broadcast(driver.state()) | {"rng": driver.state()["rng"]}
    first, second = draw(), draw()
    driver.load_state(state)
    again = draw()
    driver.setup(0)
    restarted = draw()
    driver.shutdown()
    return {"first": first, "second": second, "again": again, "restarted": restarted}


def life_after_an_error(subject: Description) -> dict[str, Any]:
    """A driver is set up twice, fails, and is shut down twice; another one takes its place."""
    named = NamedSubject(**subject)
    driver = named.prepared()
    driver.setup(0)
    failed = False
    try:
        driver.forward(Batch({"x": object()}, np.zeros(1, np.int64)), True)
    except Exception:
        failed = True
    driver.shutdown()
    driver.shutdown()
    holds_nothing = False
    try:
        driver.unwrap()
    except DriverError:
        holds_nothing = True
    other = named.prepared()
    _, _, applied = step(other, [batch_of(range(4))], weight=4.0 * other.world_size)
    other.shutdown()
    return {"failed": failed, "holds_nothing": holds_nothing, "applied": applied}


def average(subject: Description, decay: float) -> dict[str, Any]:
    """The parameters before and after a step, the average of both, and what swapping leaves."""
    driver = NamedSubject(**subject).prepared()
    followed = driver.average_parameters()
    start = driver.model_state()
    step(driver, [batch_of(range(8))], weight=8.0 * driver.world_size)
    end = driver.model_state()
    followed.update(decay)
    followed.swap()
    swapped = driver.model_state()
    followed.swap()
    found = {"start": start, "end": end, "average": swapped, "back": driver.model_state()}
    driver.shutdown()
    return found
