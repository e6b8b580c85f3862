"""Facts about optimizers and their groups."""

from __future__ import annotations

import numpy as np

from expkit.optimizers import SGD
from expkit.testing.steps import batch_of, flat, step
from expkit.testing.subject import Subject


class OptimizerFacts(Subject):
    """What holds for the optimizers of every driver."""

    def test_the_factor_reaches_every_group(self) -> None:
        """A schedule's factor multiplies the rate of each parameter group."""
        half = self.prepared(SGD(lr=1.0, groups=[{"params": "*bias", "lr": 0.5}]))
        full = self.prepared(SGD(lr=1.0))
        before = full.model_state()
        step(half, [batch_of(range(8))], factors=[0.5])
        step(full, [batch_of(range(8))])
        for path in before:
            rate = 0.25 if path.endswith("bias") else 0.5
            change = half.model_state()[path] - before[path]
            whole = full.model_state()[path] - before[path]
            np.testing.assert_allclose(change, rate * whole, rtol=1e-4, atol=1e-7)

    def test_each_of_several_optimizers_is_stepped_once(self) -> None:
        """Two optimizers with a layer each do what one with both does."""
        layers = sorted({path.rpartition(".")[0] for path in self.prepared().model_state()})
        split = {
            "first": SGD(lr=1.0, params=f"{layers[0]}.*"),
            "second": SGD(lr=1.0, params=f"{layers[1]}.*"),
        }
        driver, whole = self.prepared(split), self.prepared()
        assert driver.optimizer_names == ("first", "second")
        step(driver, [batch_of(range(8))], factors=[1.0, 1.0])
        step(whole, [batch_of(range(8))])
        np.testing.assert_allclose(flat(driver.model_state()), flat(whole.model_state()), rtol=1e-6)
