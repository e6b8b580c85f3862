from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.collective import SingleProcess
from expkit.core.errors import DataError, PredictionError, StepError
from expkit.core.predictor import Predictor
from expkit.data import Data
from expkit.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
)
from expkit.run.strict_json import encode_line
from tests.cases.parts import make_driver, make_mlp, samples


class Outputs:
    """A driver whose model gives scripted outputs, one batch after the other."""

    rank, world_size = 0, 1
    evaluates_together = False
    group = SingleProcess()

    def __init__(self, *outputs):
        self.outputs = list(outputs)
        self.needs = set()

    def evaluate_step(self, batch, needs):
        self.needs |= needs
        outputs = self.outputs.pop(0)
        if isinstance(outputs, Exception):
            raise outputs
        return {name: np.asarray(outputs[name]) for name in needs if name in outputs}


class Batches:
    """One set of given batches."""

    def __init__(self, *batches):
        self._batches = batches

    def eval_loaders(self, **options):
        self.options = options
        return {"": types.SimpleNamespace(batches=lambda: iter(self._batches))}


def one(size, weights=None, **fields):
    weights = None if weights is None else np.asarray(weights, np.float32)
    return Batch(fields, np.arange(size), weights)


def rows(given_outputs, batch, **options):
    is_output = not isinstance(given_outputs, (Mapping, Exception))
    driver = Outputs({"output": given_outputs} if is_output else given_outputs)
    return list(Predictor(driver=driver, data=Batches(batch), **options).rows())


LOGITS = np.float32([[0, 3], [2, 0], [1, 0]])


def test_classes_are_told_by_label_and_probability():
    assert rows(LOGITS, one(3), loss=CrossEntropy()) == [
        {"index": 0, "label": 1, "probability": 0.952574},
        {"index": 1, "label": 0, "probability": 0.880797},
        {"index": 2, "label": 0, "probability": 0.731059},
    ]


@pytest.mark.parametrize("loss", [MeanSquaredError(), MeanAbsoluteError(), Huber()])
def test_real_numbers_are_told_by_their_value(loss):
    found = rows(np.float32([[0.1], [-2.5]]), one(2), loss=loss)
    assert found == [{"index": 0, "value": 0.1}, {"index": 1, "value": -2.5}]


def test_of_two_classes_the_probability_is_that_of_label_1():
    found = rows(np.float32([2, -2]), one(2), loss=BinaryCrossEntropy())
    assert found == [
        {"index": 0, "label": 1, "probability": 0.880797},
        {"index": 1, "label": 0, "probability": 0.119203},
    ]


@pytest.mark.parametrize("loss", [None, lambda outputs, batch: 0.0])
def test_without_a_loss_that_tells_the_output_is_given_as_it_is(loss):
    found = rows(np.float32([[3, -1], [2, 2]]), one(2), loss=loss)
    assert found == [{"index": 0, "output": [3.0, -1.0]}, {"index": 1, "output": [2.0, 2.0]}]


@pytest.mark.parametrize(("loss", "name"), [(None, "output"), (CrossEntropy(), "label")])
def test_tags_that_the_model_decides_on_are_as_many_as_there_are_tokens(loss, name):
    found = rows([[3, 1, 0], [2, -1, -1], [-1, -1, -1]], one(3), loss=loss)
    assert [row[name] for row in found] == [[3, 1, 0], [2], []]
    assert [row[name] for row in rows([3, -1], one(2), loss=loss)] == [3, -1]


def test_neither_padding_nor_positions_that_do_not_count_are_told():
    batch = one(2, y=np.array([[0, 1, -100], [-100, 1, -100]]))
    found = rows([[3, 1, -1], [2, 2, -1]], batch, loss=CrossEntropy(ignore_index=-100))
    assert [row["label"] for row in found] == [[3, 1], [2]]


def test_the_output_that_the_loss_judges_is_read():
    found = rows({"logits": LOGITS}, one(3), loss=CrossEntropy(output="logits"))
    assert [row["label"] for row in found] == [1, 0, 0]


def test_a_sequence_is_a_list_without_the_positions_that_do_not_count():
    batch = one(2, y=np.array([[0, 1, -1], [1, -1, -1]]))
    found = rows(np.stack([LOGITS, LOGITS]), batch, loss=CrossEntropy(ignore_index=-1))
    assert [row["label"] for row in found] == [[1, 0], [1]]
    assert [row["probability"] for row in found] == [[0.952574, 0.880797], [0.952574]]


@pytest.mark.parametrize("fields", [{}, {"y": np.zeros((2, 1), int)}, {"y": ["a", "b"]}])
def test_a_sequence_without_targets_that_fit_is_a_list_of_all_positions(fields):
    found = rows(np.stack([LOGITS, LOGITS]), one(2, **fields), loss=CrossEntropy(ignore_index=0))
    assert [row["label"] for row in found] == [[1, 0, 0], [1, 0, 0]]


def test_in_a_grid_the_positions_that_do_not_count_are_null():
    y = np.array([[[0, -1], [1, 1]]])
    found = rows(np.zeros((1, 2, 2, 3)), one(1, y=y), loss=CrossEntropy(ignore_index=-1))
    assert found[0]["label"] == [[0, None], [0, 0]]


def test_a_sample_whose_own_label_does_not_count_is_predicted_all_the_same():
    batch = one(3, y=np.array([0, -1, 1]))
    assert len(rows(LOGITS, batch, loss=CrossEntropy(ignore_index=-1))) == 3


def test_nothing_asks_for_the_loss_or_for_targets():
    driver = Outputs({"output": LOGITS})
    list(Predictor(driver=driver, data=Batches(one(3)), loss=CrossEntropy()).rows())
    assert driver.needs == {"output"}


def test_outputs_that_are_asked_for_stand_beside():
    found = rows(
        {"output": LOGITS, "state": [[[1, 2]], [[3, 4]], [[5, 6]]]},
        one(3),
        loss=CrossEntropy(),
        outputs=["output", "state"],
    )
    assert found[1]["outputs"] == {"output": [2.0, 0.0], "state": [[3, 4]]}
    assert list(found[1]) == ["index", "label", "probability", "outputs"]


@pytest.mark.parametrize(
    "ids", [["a", "é", "名\ud800"], np.array([7, 9, 8]), np.array(["a", "b", "c"]), (1, 2, 3)]
)
def test_samples_are_named_by_the_field_id(ids):
    found = rows(LOGITS, one(3, id=ids), loss=CrossEntropy())
    assert [row["id"] for row in found] == list(ids)
    assert list(found[0])[:2] == ["index", "id"]
    assert [json.loads(encode_line(row))["id"] for row in found] == list(ids)


def test_as_many_ids_as_samples_are_needed():
    with pytest.raises(PredictionError, match="field 'id' has 2 values for 3 samples"):
        rows(LOGITS, one(3, id=["a", "b"]), loss=CrossEntropy())


def test_identities_of_samples_that_are_read_one_by_one_lose_nothing():
    for ids in ([1700000001.5, 2.25], [5, 2**63 + 1], [2**70, 1], [np.float64(0.1), 1], [2**62, 1]):
        items = [{"x": 0, "id": each} for each in ids]
        for source in (items, {"x": [0, 0], "id": ids}):
            [batch] = Data(None, source).eval_loaders()[""].batches()
            assert [row["id"] for row in rows(LOGITS[:2], batch)] == ids


def test_an_identity_that_is_none_of_all_samples_is_left_out():
    assert list(rows(LOGITS, one(3, id=None), loss=CrossEntropy())[0]) == [
        "index",
        "label",
        "probability",
    ]


def test_scores_that_are_nan_have_no_label_and_the_line_stays_json():
    scores = np.float32([[[math.nan, 0], [0, 1], [0, 0]]])
    batch = one(1, y=np.array([[0, 1, -1]]))
    line = encode_line(rows(scores, batch, loss=CrossEntropy(ignore_index=-1))[0])
    assert json.loads(line) == {"index": 0, "label": [None, 1], "probability": ["NaN", 0.731059]}


def test_names_of_sets_are_text():
    loader = types.SimpleNamespace(batches=lambda: iter([one(3)]))
    data = types.SimpleNamespace(eval_loaders=lambda **options: {1: loader, 2: loader})
    predictor = Predictor(driver=Outputs({"output": LOGITS}), data=data)
    assert predictor.sets == ("1", "2")
    assert len(list(predictor.rows("1"))) == 3
    data = types.SimpleNamespace(eval_loaders=lambda **options: {1: loader, "1": loader})
    with pytest.raises(PredictionError, match="two sets have one name as text: 1, '1'"):
        Predictor(driver=Outputs(), data=data)


def test_samples_of_weight_0_are_left_out():
    found = rows(LOGITS, one(3, [1, 0, 1]), loss=CrossEntropy())
    assert [row["index"] for row in found] == [0, 2]


def test_an_output_that_is_not_there_is_told_with_what_mends_it():
    with pytest.raises(PredictionError, match=r"no output 'output'.*output_mapping=.*: output}"):
        rows({"logits": LOGITS}, one(3))
    with pytest.raises(PredictionError, match=r"no output 'x'.*trainer.predict_outputs"):
        rows(LOGITS, one(3), outputs=["x"])


@pytest.mark.parametrize("output", [1.0, [1.0, 2.0]])
def test_an_output_without_a_row_for_each_sample_is_refused(output):
    with pytest.raises(PredictionError, match=r"has the shape .* for 3 samples"):
        rows(output, one(3))


def test_an_error_names_the_samples_and_keeps_its_cause():
    with pytest.raises(StepError, match=r"prediction on samples \[0, 1\] failed: KeyError") as e:
        rows(KeyError("x"), one(2))
    assert isinstance(e.value.__cause__, KeyError)
    with pytest.raises(DataError, match=r"^mine$"):
        rows(DataError("mine"), one(2))


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(0, 3))))
def test_numbers_are_read_as_they_were(output):
    lines = [encode_line(row) for row in rows(output, one(len(output)))]
    read = [[float(value) for value in json.loads(line)["output"]] for line in lines]
    np.testing.assert_array_equal(np.float32(read).reshape(output.shape), output)


def test_numbers_are_short():
    line = encode_line(rows(np.float32([[0.1, 1e-7, 3]]), one(1))[0])
    assert line == b'{"index":0,"output":[0.1,1e-07,3.0]}\n'


def test_numbers_that_are_not_finite_are_text():
    line = encode_line(rows(np.float32([[math.nan, math.inf, -math.inf]]), one(1))[0])
    assert json.loads(line)["output"] == ["NaN", "Infinity", "-Infinity"]


def test_limits_and_ranks_reach_the_data():
    data = Batches()
    predictor = Predictor(driver=Outputs(), data=data, limit_batches=3, overfit_batches=2, seed=5)
    assert predictor.sets == ("",)
    assert data.options == {
        "rank": 0,
        "world_size": 1,
        "limit_batches": 3,
        "overfit_batches": 2,
        "in_step": False,
        "seed": 5,
        "whole_batches": True,
    }


def test_a_real_model_predicts_samples_without_targets(framework):
    data = samples(11)
    held_out = {"image": data["x"], "id": [f"s{n}" for n in range(11)]}
    driver = make_driver(framework)
    predictor = Predictor(
        driver=driver,
        data=Data(None, {"dev": held_out, "all": held_out}, eval_batch_size=4),
        model=make_mlp(framework),
        loss=CrossEntropy(),
        binding=Binding(inputs={"image": "x"}),
    )
    assert predictor.sets == ("dev", "all")
    found = list(predictor.rows("dev"))
    assert predictor.num_batches == 3
    batch = Batch(held_out, np.arange(11))
    scores = driver.evaluate_step(batch, frozenset({"output"}))["output"]
    assert [row["label"] for row in found] == scores.argmax(axis=1).tolist()
    assert [row["id"] for row in found] == held_out["id"]
