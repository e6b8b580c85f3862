"""The contract of a driver as tests: a subclass supplies `make_driver` and `make_model`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.core.errors import CheckpointError, ConfigError, DriverError
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD, Adam, AdamW

FEATURES, CLASSES = 6, 3


def batch_of(indices, weights=None, seed=0):
    """Samples by index: the same index is the same sample in every batch."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((64, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, 64)
    indices = np.asarray(indices, dtype=np.int64)
    weights = None if weights is None else np.asarray(weights, dtype=np.float32)
    return Batch({"x": x[indices], "y": y[indices]}, indices, weights)


def step(driver, batches, factors=(1.0,), clip_norm=None):
    """One optimizer step over a window; the losses of its micro-batches."""
    weight = sum(batch.size for batch in batches)
    terms = []
    for batch in batches:
        outputs = driver.forward(batch, batch is batches[-1])
        term = driver.loss(outputs, batch)
        driver.backward(term, 1.0 / weight)
        terms.append(term)
    norm = None if clip_norm is None else float(driver.clip_gradients(clip_norm))
    applied = driver.optimizer_step(list(factors))
    return terms, norm, applied


def gradient(driver, batches, clip_norm=None):
    """The gradient by parameter path, read off an SGD step with rate 1."""
    before = driver.model_state()
    _, norm, _ = step(driver, batches, clip_norm=clip_norm)
    after = driver.model_state()
    return {path: before[path] - after[path] for path in before}, norm


def flat(state):
    return np.concatenate([np.ravel(state[path]).astype(np.float64) for path in sorted(state)])


def assert_same(left, right):
    """Two state trees, equal to the last bit."""
    assert left.keys() == right.keys()
    for key, value in left.items():
        if isinstance(value, dict):
            assert_same(value, right[key])
        else:
            np.testing.assert_array_equal(value, right[key], err_msg=str(key))


class DriverSuite(ABC):
    """Facts that hold on every driver."""

    @abstractmethod
    def make_driver(self, **options):
        """A new driver on the CPU."""

    @abstractmethod
    def make_model(self, *, dropout=0.0, norm="none", hidden=(5,)):
        """A bundled perceptron with tanh, FEATURES inputs and CLASSES outputs."""

    def prepared(self, optimizer=None, loss=None, seed=0, **model):
        driver = self.make_driver()
        driver.setup(seed)
        made = self.make_model(**model)
        made.initialize(seed)
        driver.prepare(made, optimizer or SGD(lr=1.0), loss or CrossEntropy())
        return driver

    # -- gradients ---------------------------------------------------------------------------------

    def test_gradients_match_finite_differences(self):
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

    def test_a_window_equals_a_large_batch(self):
        whole, _ = gradient(self.prepared(), [batch_of(range(12))])
        parts, _ = gradient(
            self.prepared(), [batch_of(range(5)), batch_of(range(5, 9)), batch_of(range(9, 12))]
        )
        np.testing.assert_allclose(flat(parts), flat(whole), rtol=1e-5, atol=1e-7)

    def test_samples_of_weight_zero_change_nothing(self):
        padded = batch_of([0, 1, 2, 0, 0], [1, 1, 1, 0, 0])
        assert padded.size == 3
        left, _ = gradient(self.prepared(), [padded])
        right, _ = gradient(self.prepared(), [batch_of([0, 1, 2])])
        np.testing.assert_allclose(flat(left), flat(right), rtol=1e-5, atol=1e-7)

    def test_a_loss_that_leaves_labels_out_is_exact_over_the_window(self):
        loss = CrossEntropy(ignore_index=-1)

        def masked(indices, ignored):
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

    def test_clip_returns_the_norm_before_clipping(self):
        free, _ = gradient(self.prepared(), [batch_of(range(8))])
        norm = np.linalg.norm(flat(free))
        clipped, told = gradient(self.prepared(), [batch_of(range(8))], clip_norm=norm / 4)
        assert told == pytest.approx(norm, rel=1e-5)
        np.testing.assert_allclose(flat(clipped), flat(free) / 4, rtol=1e-4, atol=1e-7)

    def test_clipping_is_on_the_whole_window(self):
        batches = [batch_of(range(4)), batch_of(range(4, 8))]
        free, _ = gradient(self.prepared(), batches)
        norm = np.linalg.norm(flat(free))
        clipped, _ = gradient(self.prepared(), batches, clip_norm=norm / 2)
        np.testing.assert_allclose(flat(clipped), flat(free) / 2, rtol=1e-4, atol=1e-7)

    def test_a_large_norm_clips_nothing(self):
        free, _ = gradient(self.prepared(), [batch_of(range(8))])
        clipped, _ = gradient(self.prepared(), [batch_of(range(8))], clip_norm=1e6)
        np.testing.assert_array_equal(flat(clipped), flat(free))

    def test_clip_by_value_bounds_each_entry(self):
        driver = self.prepared()
        before = driver.model_state()
        batch = batch_of(range(8))
        driver.backward(driver.loss(driver.forward(batch, True), batch), 1 / 8)
        driver.clip_gradients(max_value=0.01)
        driver.optimizer_step([1.0])
        change = flat(before) - flat(driver.model_state())
        assert np.abs(change).max() == pytest.approx(0.01, rel=1e-3)

    def test_discarded_gradients_are_gone(self):
        driver, fresh = self.prepared(), self.prepared()
        batch = batch_of(range(4))
        driver.backward(driver.loss(driver.forward(batch, True), batch), 1.0)
        driver.discard_gradients()
        step(driver, [batch_of(range(4, 8))])
        step(fresh, [batch_of(range(4, 8))])
        np.testing.assert_array_equal(flat(driver.model_state()), flat(fresh.model_state()))

    # -- losses and evaluation ---------------------------------------------------------------------

    def test_losses_are_read_as_sums_and_weights(self):
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

    def test_evaluation_changes_nothing(self):
        norm = "none" if self.make_driver().framework == "numpy" else "batch"
        driver = self.prepared(Adam(lr=0.01), dropout=0.5, norm=norm)
        step(driver, [batch_of(range(8))])
        batch = batch_of(range(8, 16))
        driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 8)
        before, draws = driver.state(), (random.getstate(), np.random.get_state()[1].copy())
        first = driver.evaluate_step(batch, frozenset({"output", "loss"}))
        second = driver.evaluate_step(batch, frozenset({"output", "loss"}))
        np.testing.assert_array_equal(first["output"], second["output"])
        assert_same(before, driver.state())
        assert random.getstate() == draws[0]
        np.testing.assert_array_equal(np.random.get_state()[1], draws[1])
        assert driver.unwrap().training
        twin = self.prepared(Adam(lr=0.01), dropout=0.5, norm=norm)
        step(twin, [batch_of(range(8))])
        twin.backward(twin.loss(twin.forward(batch, False), batch), 1 / 8)
        for each in (driver, twin):
            each.optimizer_step([1.0])
        np.testing.assert_array_equal(flat(driver.model_state()), flat(twin.model_state()))

    def test_evaluation_gives_what_was_asked_for(self):
        driver = self.prepared()
        host = driver.evaluate_step(batch_of(range(7)), frozenset({"output", "loss"}))
        assert host["output"].shape == (7, CLASSES)
        assert host["loss"].shape == (7,)
        assert set(driver.evaluate_step(batch_of(range(7)), frozenset({"loss"}))) == {"loss"}

    # -- optimizers --------------------------------------------------------------------------------

    def test_the_factor_reaches_every_group(self):
        groups = [{"params": "*bias", "lr": 0.5}]
        driver = self.prepared(SGD(lr=1.0, groups=groups))
        full, half = self.prepared(SGD(lr=1.0)), driver
        before = driver.model_state()
        step(half, [batch_of(range(8))], factors=[0.5])
        step(full, [batch_of(range(8))])
        for path in before:
            rate = 0.25 if path.endswith("bias") else 0.5
            change = half.model_state()[path] - before[path]
            whole = full.model_state()[path] - before[path]
            np.testing.assert_allclose(change, rate * whole, rtol=1e-4, atol=1e-7)

    def test_each_of_several_optimizers_is_stepped_once(self):
        split = {"first": SGD(lr=1.0, params="*.0.*"), "second": SGD(lr=1.0, params="*.2.*")}
        model_paths = list(self.prepared().model_state())
        first = sorted({path.rsplit(".", 1)[0] for path in model_paths})
        split = {
            "first": SGD(lr=1.0, params=f"{first[0]}.*"),
            "second": SGD(lr=1.0, params=f"{first[1]}.*"),
        }
        driver, whole = self.prepared(split), self.prepared()
        assert driver.optimizer_names == ("first", "second")
        step(driver, [batch_of(range(8))], factors=[1.0, 1.0])
        step(whole, [batch_of(range(8))])
        np.testing.assert_allclose(flat(driver.model_state()), flat(whole.model_state()), rtol=1e-6)

    # -- state -------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "optimizer", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.01), AdamW(lr=0.01)], ids=str
    )
    @pytest.mark.parametrize("steps", [0, 1, 3])
    def test_a_state_round_trip_is_exact_at_every_step(self, optimizer, steps):
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

    def test_a_state_loads_after_other_steps(self):
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        state = driver.state()
        step(driver, [batch_of(range(8, 16))])
        driver.load_state(state)
        assert_same(state, driver.state())

    def test_state_keys_are_parameter_paths(self):
        driver = self.prepared(Adam(lr=0.01))
        step(driver, [batch_of(range(8))])
        state = driver.state()
        (accumulators,) = state["optimizer"].values()
        paths = {key.rpartition("/")[0] for key in accumulators}
        assert paths - {""} == set(state["model"])

    def test_a_second_model_in_the_process_has_the_same_keys(self):
        states = []
        for _ in range(2):
            driver = self.prepared(Adam(lr=0.01))
            step(driver, [batch_of(range(8))])
            states.append(driver.state())
        assert_same(states[0], states[1])

    def test_weights_of_another_model_are_refused(self):
        driver, wider = self.prepared(), self.prepared(hidden=(9,))
        with pytest.raises(CheckpointError, match="another model"):
            driver.load_model_state(wider.model_state())
        with pytest.raises(CheckpointError, match="lacks"):
            driver.load_model_state({})

    def test_dropout_goes_on_where_it_was(self):
        driver = self.prepared(dropout=0.5)
        step(driver, [batch_of(range(8))])
        state = driver.state()
        results = []
        for _ in range(2):
            driver.load_state(state)
            step(driver, [batch_of(range(8, 16))])
            results.append(flat(driver.model_state()))
        np.testing.assert_array_equal(*results)

    def test_the_average_follows_the_parameters(self):
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
        kept = average.state()
        average.swap()
        assert_same(driver.model_state(), end)
        other = driver.average_parameters()
        average.swap()
        other.load_state(average.state())
        assert kept.keys() == other.state().keys()

    # -- life --------------------------------------------------------------------------------------

    def test_the_same_seed_gives_the_same_run(self):
        results = []
        for _ in range(2):
            driver = self.prepared(dropout=0.5)
            for number in range(3):
                step(driver, [batch_of(range(number, number + 8))])
            results.append(flat(driver.model_state()))
        np.testing.assert_array_equal(*results)

    def test_setup_and_shutdown_may_be_called_twice(self):
        driver = self.prepared()
        driver.setup(0)
        with pytest.raises(Exception):  # noqa: B017, PT011 - any error; what follows matters
            driver.forward(Batch({"x": object()}, np.zeros(1, np.int64)), True)
        driver.shutdown()
        driver.shutdown()
        with pytest.raises(DriverError, match="prepare"):
            driver.unwrap()

    def test_a_world_of_one_talks_to_itself(self):
        driver = self.make_driver()
        assert (driver.rank, driver.local_rank, driver.world_size) == (0, 0, 1)
        np.testing.assert_array_equal(driver.all_reduce(np.array([1.5, 2.5])), [1.5, 2.5])
        assert driver.all_gather({"a": [1]}) == [{"a": [1]}]
        assert driver.broadcast("x") == "x"
        driver.barrier()

    def test_a_model_of_another_kind_is_refused(self):
        with pytest.raises(ConfigError, match="model"):
            self.make_driver().prepare(object(), SGD(lr=1.0), CrossEntropy())

    def test_unknown_devices_and_precisions_are_refused(self):
        with pytest.raises(ConfigError, match=r"driver\.device"):
            self.make_driver(device="toaster")
        with pytest.raises(ConfigError, match=r"driver\.precision"):
            self.make_driver(precision="fp7")
