"""Facts about losses and evaluation."""

from __future__ import annotations

import numpy as np

from expkit.core.seeding import host_rng_state
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD, Adam
from expkit.testing.steps import CLASSES, State, assert_same, batch_of, step
from expkit.testing.subject import Subject


class EvaluationFacts(Subject):
    """What holds for losses and evaluation on every driver.

    Attributes:
        norm: a normalisation that the model of ``make_model`` can have and that keeps statistics;
            ``none`` where there is none.
    """

    norm = "batch"

    def test_losses_are_read_as_sums_and_weights(self) -> None:
        """One row for each micro-batch; padding counts in neither column."""
        driver = self.prepared()
        batches = [batch_of(range(5)), batch_of([5, 6, 7], [1, 1, 0])]
        expected = [driver.evaluate_step(batch, frozenset({"loss"}))["loss"] for batch in batches]
        terms, _, _ = step(driver, batches)
        sums = driver.read_losses(terms)
        assert sums.dtype == np.float64
        np.testing.assert_allclose(
            sums[:, 0], [expected[0].sum(), expected[1][:2].sum()], rtol=1e-5
        )
        np.testing.assert_array_equal(sums[:, 1], [5, 2])

    def test_evaluation_leaves_no_trace_in_the_state(self) -> None:
        """Neither state nor mode nor the host's generators change, even within a window."""
        driver = self.prepared(Adam(lr=0.01), dropout=0.5, norm=self.norm)
        step(driver, [batch_of(range(8))])
        batch = batch_of(range(8, 16))
        driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 8)
        before, draws = driver.state(), host_rng_state()
        first = driver.evaluate_step(batch, frozenset({"output", "loss"}))
        second = driver.evaluate_step(batch, frozenset({"output", "loss"}))
        np.testing.assert_array_equal(first["output"], second["output"])
        assert_same(before, driver.state())
        assert_same(draws, host_rng_state())
        assert driver.unwrap().training

    def test_training_goes_on_as_if_there_had_been_no_evaluation(self) -> None:
        """Within a window gradients stay, and dropout and statistics go on where they were."""

        def trained(evaluates: bool) -> State:
            driver = self.prepared(Adam(lr=0.01), dropout=0.5, norm=self.norm)
            step(driver, [batch_of(range(8))])
            for number in (1, 2):
                batch = batch_of(range(8 * number, 8 * number + 8))
                driver.backward(driver.loss(driver.forward(batch, number == 2), batch), 1 / 16)
                if evaluates:
                    driver.evaluate_step(batch_of(range(24, 32)), frozenset({"output", "loss"}))
            driver.optimizer_step([1.0])
            return driver.model_state()

        assert_same(trained(evaluates=True), trained(evaluates=False))

    def test_evaluation_gives_what_was_asked_for(self) -> None:
        """Outputs by name and the loss per sample, first axis the sample; nothing else."""
        driver = self.prepared()
        host = driver.evaluate_step(batch_of(range(7)), frozenset({"output", "loss"}))
        assert host["output"].shape == (7, CLASSES)
        assert host["loss"].shape == (7,)
        assert set(driver.evaluate_step(batch_of(range(7)), frozenset({"loss"}))) == {"loss"}

    def test_evaluation_needs_no_optimizer(self) -> None:
        """A model that is only evaluated gives the same as one that is trained."""
        trained, plain = self.prepared(), self.make_driver()
        plain.setup(0)
        model = self.make_model()
        model.initialize(0)
        plain.prepare(model, None, CrossEntropy())
        assert plain.optimizer_names == ()
        needs = frozenset({"output"})
        np.testing.assert_array_equal(
            plain.evaluate_step(batch_of(range(4)), needs)["output"],
            trained.evaluate_step(batch_of(range(4)), needs)["output"],
        )

    def test_the_rates_of_the_last_update_are_told(self) -> None:
        """Base rate times factor; the base rate before the first update."""
        driver = self.prepared(SGD(lr=0.5))
        assert driver.learning_rates() == {"lr": 0.5}
        step(driver, [batch_of(range(4))], factors=[0.25])
        assert driver.learning_rates() == {"lr": 0.125}
