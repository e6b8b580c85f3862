"""Facts about gradients: what they are, over windows, and clipped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.losses import CrossEntropy
from expkit.testing.steps import batch_of, flat, gradient, step
from expkit.testing.subject import Subject


class GradientFacts(Subject):
    """What holds for the gradients of every driver."""

    def test_gradients_match_finite_differences(self) -> None:
        """Each is (loss(p + h) - loss(p - h)) / 2h at a few entries of each parameter."""
        driver = self.prepared()
        batch = batch_of(range(8))
        start = driver.model_state()
        found, _ = gradient(driver, [batch])
        rng = np.random.default_rng(1)
        for path, value in start.items():
            for _ in range(3):
                place = tuple(rng.integers(0, size) for size in value.shape)
                losses = []
                for sign in (1, -1):
                    moved = {key: array.copy() for key, array in start.items()}
                    moved[path][place] += sign * 1e-2
                    driver.load_model_state(moved)
                    losses.append(
                        driver.evaluate_step(batch, frozenset({"loss"}))["loss"]
                        .astype(np.float64)
                        .mean()
                    )
                numeric = (losses[0] - losses[1]) / 2e-2
                assert found[path][place] == pytest.approx(numeric, rel=2e-2, abs=1e-4)

    def test_a_window_equals_a_large_batch(self) -> None:
        """Micro-batches of 5, 4 and 3 samples give the gradient of one batch of 12."""
        whole, _ = gradient(self.prepared(), [batch_of(range(12))])
        parts, _ = gradient(
            self.prepared(), [batch_of(range(5)), batch_of(range(5, 9)), batch_of(range(9, 12))]
        )
        np.testing.assert_allclose(flat(parts), flat(whole), rtol=1e-5, atol=1e-7)

    def test_samples_of_weight_zero_change_nothing(self) -> None:
        """Padding leaves the gradient of the samples that count."""
        padded = batch_of([0, 1, 2, 0, 0], [1, 1, 1, 0, 0])
        assert padded.size == 3
        left, _ = gradient(self.prepared(), [padded])
        right, _ = gradient(self.prepared(), [batch_of([0, 1, 2])])
        np.testing.assert_allclose(flat(left), flat(right), rtol=1e-5, atol=1e-7)

    def test_a_loss_that_leaves_labels_out_is_exact_over_the_window(self) -> None:
        """The mean is over the labels that count in the whole window, not in each micro-batch."""
        loss = CrossEntropy(ignore_index=-1)

        def masked(indices: Sequence[int], ignored: Sequence[int]) -> Batch:
            batch = batch_of(indices)
            batch.fields["y"][ignored] = -1
            return batch

        whole, _ = gradient(self.prepared(loss=loss), [masked(range(8), [0, 1, 6])])
        parts, _ = gradient(
            self.prepared(loss=loss), [masked(range(4), [0, 1]), masked(range(4, 8), [2])]
        )
        kept, _ = gradient(self.prepared(), [batch_of([2, 3, 4, 5, 7])])
        np.testing.assert_allclose(flat(parts), flat(whole), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(flat(whole), flat(kept), rtol=1e-5, atol=1e-7)

    def test_clip_returns_the_norm_before_clipping(self) -> None:
        """The norm is global, and the gradient is scaled to the one allowed."""
        free, _ = gradient(self.prepared(), [batch_of(range(8))])
        norm = float(np.linalg.norm(flat(free)))
        clipped, told = gradient(self.prepared(), [batch_of(range(8))], clip_norm=norm / 4)
        assert told == pytest.approx(norm, rel=1e-5)
        np.testing.assert_allclose(flat(clipped), flat(free) / 4, rtol=1e-4, atol=1e-7)

    def test_clipping_is_on_the_whole_window(self) -> None:
        """The sum over micro-batches is clipped, not its parts."""
        batches = [batch_of(range(4)), batch_of(range(4, 8))]
        free, _ = gradient(self.prepared(), batches)
        norm = float(np.linalg.norm(flat(free)))
        clipped, _ = gradient(self.prepared(), batches, clip_norm=norm / 2)
        np.testing.assert_allclose(flat(clipped), flat(free) / 2, rtol=1e-4, atol=1e-7)

    def test_a_large_norm_clips_nothing(self) -> None:
        """A gradient within the norm stays as it is, to the last bit."""
        free, _ = gradient(self.prepared(), [batch_of(range(8))])
        clipped, _ = gradient(self.prepared(), [batch_of(range(8))], clip_norm=1e6)
        np.testing.assert_array_equal(flat(clipped), flat(free))

    def test_clip_by_value_bounds_each_entry(self) -> None:
        """No entry is larger than ``max_value``."""
        driver = self.prepared()
        before = driver.model_state()
        batch = batch_of(range(8))
        driver.backward(driver.loss(driver.forward(batch, True), batch), 1 / 8)
        driver.clip_gradients(max_value=0.01)
        driver.optimizer_step([1.0])
        change = flat(before) - flat(driver.model_state())
        assert np.abs(change).max() == pytest.approx(0.01, rel=1e-3)

    def test_discarded_gradients_are_gone(self) -> None:
        """The next step is that of a driver which never had them."""
        driver, fresh = self.prepared(), self.prepared()
        batch = batch_of(range(4))
        driver.backward(driver.loss(driver.forward(batch, True), batch), 1.0)
        driver.discard_gradients()
        step(driver, [batch_of(range(4, 8))])
        step(fresh, [batch_of(range(4, 8))])
        np.testing.assert_array_equal(flat(driver.model_state()), flat(fresh.model_state()))
