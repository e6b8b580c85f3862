"""Facts about a driver's life: seeds, errors, a world of one."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.core.errors import ConfigError, DriverError
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD
from expkit.testing.steps import batch_of, flat, step
from expkit.testing.subject import Subject


class LifeFacts(Subject):
    """What holds for the life of every driver."""

    def test_the_same_seed_gives_the_same_run(self) -> None:
        """Dropout follows from the seed of ``setup``."""
        results = []
        for _ in range(2):
            driver = self.prepared(dropout=0.5)
            for number in range(3):
                step(driver, [batch_of(range(number, number + 8))])
            results.append(flat(driver.model_state()))
        np.testing.assert_array_equal(results[0], results[1])

    def test_setup_and_shutdown_may_be_called_twice(self) -> None:
        """After an error too; a driver that was shut down holds no model."""
        driver = self.prepared()
        driver.setup(0)
        with pytest.raises(Exception):  # noqa: B017, PT011 - any error; what follows matters
            driver.forward(Batch({"x": object()}, np.zeros(1, np.int64)), True)
        driver.shutdown()
        driver.shutdown()
        with pytest.raises(DriverError, match="prepare"):
            driver.unwrap()

    def test_a_world_of_one_talks_to_itself(self) -> None:
        """Collectives of a single process are the identity."""
        driver = self.make_driver()
        assert (driver.rank, driver.local_rank, driver.world_size) == (0, 0, 1)
        np.testing.assert_array_equal(driver.all_reduce(np.array([1.5, 2.5])), [1.5, 2.5])
        assert driver.all_gather({"a": [1]}) == [{"a": [1]}]
        assert driver.broadcast("x") == "x"
        driver.barrier()

    def test_a_model_of_another_kind_is_refused(self) -> None:
        """The error names the key ``model``."""
        with pytest.raises(ConfigError, match="model"):
            self.make_driver().prepare(object(), SGD(lr=1.0), CrossEntropy())

    def test_unknown_devices_and_precisions_are_refused(self) -> None:
        """The errors name ``driver.device`` and ``driver.precision``."""
        with pytest.raises(ConfigError, match=r"driver\.device"):
            self.make_driver(device="toaster")
        with pytest.raises(ConfigError, match=r"driver\.precision"):
            self.make_driver(precision="fp7")
