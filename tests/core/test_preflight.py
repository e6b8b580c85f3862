from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import DataError, NonFiniteLossError, StepError
from expkit.core.preflight import check_targets, check_weights
from expkit.data import Data
from expkit.losses import CrossEntropy
from tests.cases.parts import samples


class Driver:
    """Gives outputs of one shape, or an error."""

    def __init__(self, outputs):
        self.outputs, self.seen = outputs, []

    def evaluate_step(self, batch, needs):
        self.seen.append(len(batch.indices))
        if isinstance(self.outputs, Exception):
            raise self.outputs
        return self.outputs


GOOD = {"output": np.zeros((2, 3))}


def wrong(n=6, place=4):
    data = samples(n)
    data["y"][place] = 3
    return data


def test_targets_in_memory_are_all_looked_at_with_two_samples_through_the_model():
    driver = Driver(GOOD)
    check_targets(driver, Data(samples(6), samples(4)), CrossEntropy())
    assert driver.seen == [2]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (Data(wrong()), "the training set: "),
        (Data(samples(6), wrong()), "the evaluation set: "),
        (Data(samples(6), {"a": samples(6), "b": wrong()}), "the evaluation set b: "),
    ],
)
def test_the_set_the_place_and_the_label_are_named(data, what):
    with pytest.raises(DataError, match=rf"^{what}.*label 3 at position 4; allowed: 0 to 2"):
        check_targets(Driver(GOOD), data, CrossEntropy())


def test_a_set_of_one_sample_is_looked_at():
    driver = Driver({"output": np.zeros((1, 3))})
    check_targets(driver, Data(samples(1)), CrossEntropy())
    assert driver.seen == [1]


@pytest.mark.parametrize(
    ("data", "loss"),
    [
        (Data(wrong()), None),
        (Data(wrong()), lambda outputs, batch: 0),
        (Data([{"x": 0, "y": 9}]), CrossEntropy()),
        (Data(wrong()), CrossEntropy(target="label")),
        (object(), CrossEntropy()),
    ],
)
def test_what_cannot_be_known_is_not_looked_at(data, loss):
    check_targets(Driver(AssertionError()), data, loss)


def test_a_model_without_that_output_is_left_to_the_first_step():
    check_targets(Driver({}), Data(wrong()), CrossEntropy())


def test_an_error_of_the_model_comes_with_the_types_of_the_fields():
    with pytest.raises(StepError, match=r"first look .*x float32, y int64.*RuntimeError: no"):
        check_targets(Driver(RuntimeError("no")), Data(samples(6)), CrossEntropy())


def test_weights_with_a_nan_are_named():
    good = {"a": np.ones(3, np.float32), "n": np.arange(3)}
    check_weights(good, 5)
    check_weights(good | {"mask": np.array([-np.inf, 0])}, 5)
    with pytest.raises(NonFiniteLossError, match="b holds NaN after step 5"):
        check_weights(good | {"b": np.array([1.0, np.nan])}, 5)
