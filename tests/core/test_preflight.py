from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

from expkit.core import trainer
from expkit.core.collective import SingleProcess
from expkit.core.errors import DataError, ExpkitError, NonFiniteLossError, StepError
from expkit.core.preflight import check_replicas, check_same_data, check_targets
from expkit.core.state import check_weights
from expkit.data import Data
from expkit.losses import CrossEntropy
from tests.cases.parts import make_trainer, samples


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


# -- ranks -----------------------------------------------------------------------------------------


class Rank(SingleProcess):
    """One of several ranks, each a thread of this process."""

    def __init__(self, rank, slots, meeting):
        super().__init__()
        self.rank, self.world_size = rank, len(slots)
        self._slots, self._meeting = slots, meeting

    def all_gather(self, value):
        self._slots[self.rank] = value
        self._meeting.wait()
        values = list(self._slots)
        self._meeting.wait()
        return values


def on_ranks(world_size, check):
    """The message with which the check fails on all ranks alike; None where it does not."""
    slots, meeting = [None] * world_size, threading.Barrier(world_size, timeout=10)

    def message(rank):
        try:
            check(Rank(rank, slots, meeting))
        except ExpkitError as error:
            return f"{type(error).__name__}: {error}"
        return None

    with ThreadPoolExecutor(world_size) as pool:
        first, *others = pool.map(message, range(world_size))
    assert others == [first] * (world_size - 1)
    return first


def compare(*by_rank):
    """Compare the data of as many ranks."""

    def check(group):
        data = by_rank[group.rank]
        loader = data.train_loader(rank=group.rank, world_size=group.world_size)
        check_same_data(group, loader, data)

    return on_ranks(len(by_rank), check)


def changed(place, field="x", n=200):
    data = samples(n)
    data[field][place] += 1
    return data


class Own:
    """A user's data: each rank reads its own files."""

    signature: ClassVar = {"samples_per_epoch": 8}

    def train_loader(self, **options):
        return self


class Unsized(Own):
    """Names that `Data` has, with another meaning."""

    arrays = 3

    def train(self):
        raise AssertionError

    eval = train


def test_the_same_data_on_all_ranks_is_no_error():
    assert compare(*(Data(samples(205), {"a": samples(4)}) for _ in range(3))) is None
    text = {"x": np.zeros((3, 2)), "text": ["a", "b", "c"]}
    assert compare(Data(text), Data({**text, "text": ["a", "b", "c"]})) is None
    assert compare(Data([{"x": 1.0}] * 3), Data([{"x": 1.0}] * 3)) is None
    assert compare(Own(), Own()) is None
    assert compare(Unsized(), Unsized()) is None


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Data(samples(205)), "the training set .*: rank 1 has 205 samples, rank 0 has 200"),
        (Data(samples(200, 1)), "the training set .*: rank 1 has other values of x, y than rank 0"),
        (Data(changed(0)), "other values of x than"),
        (Data(changed(-1, "y")), "other values of y than"),
        (Data({k: v.astype("f8") for k, v in samples(200).items()}), "of x, y, index than"),
        (Data({k: v for k, v in samples(200).items() if k != "y"}), "other values of y than"),
        (Data(samples(200), samples(4)), "the evaluation set is .*: rank 1 has 4 .* 0 has no"),
        (Data(samples(200), batch_size=16), "steps of an epoch .* per step 48 .rank 0: 96."),
    ],
)
def test_other_data_on_one_rank_is_refused_on_all_with_the_set_and_what_differs(other, what):
    error = compare(Data(samples(200)), other, Data(samples(200)))
    assert re.search(f"^DataError: .*{what}", error)
    assert "rank 2" not in error


def test_the_evaluation_set_that_differs_is_named():
    sets = [{"a": samples(6), "b": samples(n)} for n in (6, 6, 7)]
    error = compare(*(Data(samples(9), each) for each in sets))
    assert "the evaluation set b is not the same" in error
    assert "rank 2 has 7 samples, rank 0 has 6. " in error
    assert "data.source" in error


def test_an_order_that_is_drawn_anew_on_each_rank_is_refused():
    def check(group):
        data = Data(samples(64))
        check_same_data(group, data.train_loader(seed=group.rank), data)

    assert "order begins [" in on_ranks(2, check)
    assert compare(Data(samples(64)), Data(samples(64))) is None


def test_many_ranks_are_named_by_the_first():
    error = compare(Data(samples(8)), *(Data(samples(9)) for _ in range(7)))
    assert "rank 5 has 9 samples, rank 0 has 8 and 2 more. " in error


def test_one_rank_has_nobody_to_compare_with():
    check_same_data(SingleProcess(), None, None)
    driver = Weights(SingleProcess(), None)
    check_replicas(driver, 3)


class Weights:
    """A driver that holds weights; asked for None it fails."""

    def __init__(self, group, state, evaluates_together=False):
        self.world_size, self.all_gather = group.world_size, group.all_gather
        self.evaluates_together = evaluates_together
        self._state = state

    def model_state(self):
        assert self._state is not None
        return self._state


def compare_weights(*states, **options):
    return on_ranks(
        len(states), lambda group: check_replicas(Weights(group, states[group.rank], **options), 7)
    )


def test_equal_replicas_are_no_error_whatever_the_order_of_their_paths():
    one = {"b": np.arange(6.0)[::2], "a": np.array(2), "none": np.zeros((0, 3))}
    other = {"a": np.array(2), "none": np.zeros((0, 3)), "b": np.array([0.0, 2.0, 4.0])}
    assert compare_weights(one, other) is None


def test_a_replica_that_differs_in_one_bit_is_named_on_all_ranks_with_the_step():
    good = {"a": np.ones(3, np.float32), "n": np.array(1)}
    drifted = good | {"a": np.nextafter(good["a"], 2)}
    error = compare_weights(good, good, drifted)
    assert error.startswith("DriverError: the weights are not the same on all ranks after step 7: ")
    assert "rank 2 has other values of a than rank 0. " in error
    assert "rank 1" not in error
    assert "a callback that changes weights on one rank only" in error
    assert "other values of n than" in compare_weights(good, good | {"n": np.array(2)})


def test_ranks_that_hold_parts_are_not_compared():
    assert compare_weights(None, None, evaluates_together=True) is None


def test_replicas_are_compared_once_a_step_before_they_are_evaluated_or_kept(monkeypatch):
    steps = []
    monkeypatch.setattr(trainer, "check_replicas", lambda driver, step: steps.append(step))
    options = {"eval_on": 4, "eval_every": 2, "save_every": 3, "n_epochs": 2}
    make_trainer(**options, eval_at_start=True).fit()
    assert steps == [0, 2, 3, 4, 6, 8, 9, 10]
