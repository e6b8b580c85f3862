from __future__ import annotations

import numpy as np
import pytest

from expkit.core.batch import Batch
from expkit.core.errors import DataError, StepError
from expkit.core.evaluator import Evaluator
from expkit.core.failure import hint_of, raise_failure
from expkit.data import Data
from expkit.losses import CrossEntropy
from tests.cases.parts import make_driver, make_mlp, make_trainer, samples


class Driver:
    """Gives scores of three classes."""

    def __init__(self, evaluates_together=False, is_broken=False):
        self.evaluates_together, self.is_broken = evaluates_together, is_broken

    def evaluate_step(self, batch, needs):
        if self.is_broken:
            raise RuntimeError("device-side assert")
        return {"output": np.zeros((len(batch.indices), 3))}


def batch(*labels):
    return Batch({"y": np.array(labels)}, np.arange(20, 20 + len(labels)))


def failure(of, loss=None, driver=None):
    cause = IndexError("Target -1 is out of bounds")
    with pytest.raises((DataError, StepError)) as caught:
        raise_failure("step 3", of, cause, driver or Driver(), loss or CrossEntropy())
    error = caught.value
    assert error.__cause__ is (None if isinstance(error, DataError) else cause)
    return f"{type(error).__name__}: {error}"


def test_targets_that_the_loss_cannot_take_are_named_with_the_sample_and_the_remedy():
    error = failure(batch(0, 2, -1))
    assert error.startswith(
        "DataError: sample 22, at position 2 of its batch in step 3: field 'y' holds the label -1 "
    )
    assert "allowed: 0 to 2" in error
    assert error.endswith("(try: loss.ignore_index=-1, if it stands for no label)")
    assert "sample 21" in failure(batch(0, 3, 1))
    assert "try" not in failure(batch(0, 3, 1))


@pytest.mark.parametrize(
    "options",
    [
        {"of": batch(0, 1, 2)},
        {"of": Batch({"label": np.array([-1])}, np.arange(1))},
        {"of": batch(0, -1), "loss": CrossEntropy(ignore_index=-1)},
        {"of": batch(0, -1), "loss": len},
        {"of": batch(0, -1), "driver": Driver(is_broken=True)},
        {"of": batch(0, -1), "driver": Driver(evaluates_together=True)},
    ],
)
def test_any_other_failure_is_that_of_the_step(options):
    assert failure(**options).startswith("StepError: step 3 on samples [")


def test_only_one_negative_label_can_be_left_out():
    loss = CrossEntropy()
    assert "ignore_index=-7" in hint_of(loss, np.array([0, -7, -7]))
    for targets in ([0, 5], [-1, -2], [-1.0]):
        assert hint_of(loss, np.array(targets)) == ""
    assert hint_of(CrossEntropy(ignore_index=9), np.array([-1])) == ""


def test_labels_of_samples_that_are_read_one_by_one_are_named(framework):
    fields = samples(40)
    fields["y"][17] = -1
    items = [{"x": x, "y": int(y)} for x, y in zip(fields["x"], fields["y"], strict=True)]
    named = "label -1" if framework == "numpy" else r"^sample 17, at position .*label -1.*\(try: lo"
    with pytest.raises(DataError, match=named):
        make_trainer(framework, data=Data(items, batch_size=8), n_epochs=1).fit()
    with pytest.raises(DataError, match=named):
        Evaluator(
            driver=make_driver(framework),
            model=make_mlp(framework),
            loss=CrossEntropy(),
            data=Data(None, items),
        ).run()
