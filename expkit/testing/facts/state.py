"""Facts about state: exact, keyed by path, and of this model alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from expkit.core.errors import CheckpointError
from expkit.optimizers import SGD, Adam, AdamW, Optimizer
from expkit.testing.steps import assert_same, batch_of, flat, step
from expkit.testing.subject import Subject


class StateFacts(Subject):
    """What holds for the state of every driver."""

    @pytest.mark.parametrize(
        "optimizer", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.01), AdamW(lr=0.01)], ids=str
    )
    @pytest.mark.parametrize("steps", [0, 1, 3])
    def test_a_state_round_trip_is_exact_at_every_step(
        self, optimizer: Optimizer, steps: int
    ) -> None:
        """A second driver that takes the state goes on as the first does, to the last bit."""
        driver = self.prepared(optimizer, dropout=0.3)
        for number in range(steps):
            step(driver, [batch_of(range(number, number + 8))])
        state = driver.state()
        other = self.prepared(optimizer, seed=7, dropout=0.3)
        other.load_state(state)
        assert_same(state, other.state())
        after = []
        for each in (other, driver):
            each.load_state(state)
            for number in range(3):
                step(each, [batch_of(range(20 + number, 28 + number))])
            after.append(each.state())
        assert_same(after[0], after[1])

    def test_a_state_that_need_not_be_copied_is_the_same(self) -> None:
        """Whoever has done with a state before the next step may share memory with the model."""
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        assert_same(driver.state(copies=False), driver.state())

    def test_a_state_stays_as_it_is_while_training_goes_on(self) -> None:
        """Its arrays are copies."""
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        state = driver.state()
        kept = copy.deepcopy(state)
        step(driver, [batch_of(range(8, 16))])
        assert_same(state, kept)

    def test_a_state_loads_after_other_steps(self) -> None:
        """What was trained since leaves no trace."""
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        state = driver.state()
        step(driver, [batch_of(range(8, 16))])
        driver.load_state(state)
        assert_same(state, driver.state())

    def test_state_keys_are_parameter_paths(self) -> None:
        """Accumulators are kept as ``<path>/<accumulator>``."""
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        state = driver.state()
        (accumulators,) = state["optimizer"].values()
        paths = {key.rpartition("/")[0] for key in accumulators}
        assert paths - {""} == set(state["model"])

    def test_a_second_model_in_the_process_has_the_same_keys(self) -> None:
        """No name is numbered on."""
        states = []
        for _ in range(2):
            driver = self.prepared(Adam(lr=0.01))
            step(driver, [batch_of(range(8))])
            states.append(driver.state())
        assert_same(states[0], states[1])

    def test_weights_of_another_model_are_refused(self) -> None:
        """Other shapes and missing paths are told as those of another model."""
        driver, wider = self.prepared(), self.prepared(hidden=(9,))
        with pytest.raises(CheckpointError, match="another model"):
            driver.load_model_state(wider.model_state())
        with pytest.raises(CheckpointError, match="lacks"):
            driver.load_model_state({})

    def test_dropout_goes_on_where_it_was(self) -> None:
        """The random state belongs to the state."""
        driver = self.prepared(dropout=0.5)
        step(driver, [batch_of(range(8))])
        state = driver.state()
        results = []
        for _ in range(2):
            driver.load_state(state)
            step(driver, [batch_of(range(8, 16))])
            results.append(flat(driver.model_state()))
        np.testing.assert_array_equal(results[0], results[1])

    def test_a_state_without_generators_leaves_them_as_they_are(self) -> None:
        """An empty ``rng`` is that of a rank which did not exist when the state was taken."""
        driver = self.prepared()
        before = driver.state()
        driver.load_state(before | {"rng": {}})
        assert_same(before, driver.state())

    def test_the_average_follows_the_parameters(self) -> None:
        """An average of decay d is d * average + (1 - d) * parameter, and swaps places."""
        driver = self.prepared()
        average = driver.average_parameters()
        start = driver.model_state()
        step(driver, [batch_of(range(8))])
        average.update(0.75)
        end = driver.model_state()
        average.swap()
        for path, value in driver.model_state().items():
            np.testing.assert_allclose(
                value, 0.75 * start[path] + 0.25 * end[path], rtol=1e-5, atol=1e-7
            )
        average.swap()
        assert_same(driver.model_state(), end)
        other = driver.average_parameters()
        other.load_state(average.state())
        assert_same(other.state(), average.state())
