"""Theme 18 on ranks: callbacks, and options of the trainer, mean the same as on one device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.ranks.on_rank.callbacks import alone_or_together
from tests.cases.test_callbacks import OPTIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("option", OPTIONS)
def test_a_callback_alone_trains_two_epochs_and_sees_the_same_on_all_drivers(two, option):
    """Case 135: the driver of NumPy says what that is."""
    expected = alone_or_together("numpy", alone=True, option=option)
    seen = {key: expected[key] for key in ("ended", "events", "records", "found")}
    assert seen["ended"] == ["completed", 10, 0]
    assert seen["events"].count("epoch_end") == seen["events"].count("eval_end") == 2
    assert (seen["found"] != []) == (option == "on_best")
    for alone in (True, False):
        first, other = two.run("callbacks.alone_or_together", alone=alone, option=option)
        assert {key: first[key] for key in seen} == seen
        assert (other["ended"], other["events"]) == (first["ended"], first["events"])
        assert other["weights"] == first["weights"]


def test_the_moving_average_is_that_of_one_device(two, tmp_path):
    alone, alone_loss = two.agree("callbacks.moving_average", root="", alone=True)
    found, loss = two.agree("callbacks.moving_average", root=str(tmp_path), alone=False)
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-6)
    assert loss == pytest.approx(alone_loss, rel=1e-5)
    assert np.abs(np.subtract(*alone)).max() > 1e-3  # the best is another one than the last


def test_a_new_best_calls_the_function_on_rank_0_or_on_all(two):
    assert two.run("callbacks.new_bests", run_on="main") == [[[5, 0.1], [10, 0.5]], []]
    assert two.run("callbacks.new_bests", run_on="all") == [[[5, 0.1], [10, 0.5]]] * 2


@pytest.mark.parametrize(
    ("options", "trained", "steps", "evaluated"),
    [
        ({"eval_at_start": True}, 44, 12, [0, 6, 12]),
        ({"limit_train_batches": 2}, None, 4, [2, 4]),
        ({"limit_eval_batches": 2, "eval_every": 5}, 44, 12, [5, 10]),
        ({"overfit_batches": 2}, 16, 4, [2, 4]),
        ({"max_steps": 7}, 44, 7, [6]),
        ({"accumulate": 2}, 44, 12, [6, 12]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_an_option_of_the_trainer_means_what_it_means_on_one_device(
    two, options, trained, steps, evaluated
):
    alone = two.agree("callbacks.with_options", alone=True, **options)
    first, other = two.run("callbacks.with_options", alone=False, **options)
    for key in ("result", "weights", "train", "eval"):
        assert other[key] == first[key]
    assert first["result"]["steps"] == steps
    assert [step for step, _ in first["eval"]] == evaluated
    both = sorted({*first["samples"], *other["samples"]})
    assert both == alone["samples"]
    assert trained is None or both == list(range(trained))
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(first["train"], alone["train"], rtol=1e-5)
    np.testing.assert_allclose(first["eval"], alone["eval"], rtol=1e-5)
    metrics = (first["result"]["metrics"], alone["result"]["metrics"])
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)
