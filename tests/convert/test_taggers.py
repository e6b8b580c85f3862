"""The taggers give the same losses and tags in the other framework, and come back bit for bit."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.checkpoint.convert import convert_state, weights_for
from expkit.core.batch import Batch
from expkit.core.trainer import Trainer
from expkit.data import Data
from expkit.optimizers import Adam
from tests.cases.parts import make_driver
from tests.convert.parts import assert_close, assert_equal, saved

pytest.importorskip("torch")
pytest.importorskip("paddle")

STREAM = np.random.default_rng(0)
KEEP = np.arange(6) < STREAM.integers(1, 7, 8)[:, None]
FIELDS = {
    "x": np.where(KEEP, STREAM.integers(1, 9, KEEP.shape), 0),
    "y": np.where(KEEP, STREAM.integers(0, 3, KEEP.shape), -1),
    "ngrams": np.where(KEEP[:, :, None], STREAM.integers(0, 7, (8, 6, 2)), 0),
}
SIZES = {"vocab_size": 9, "ngram_vocab_size": 7, "out_features": 3}
SQUARE = {"embedding_dim": 4, "hidden": 1, "n_layers": 2}  # LSTM weights fit both ways round
CASES = {
    "lstm": ("LstmTagger", {"embedding_dim": 6, "hidden": 5}),
    "lstm-square": ("LstmTagger", {**SQUARE, "crf": False}),
    "transformer": ("TransformerTagger", {"max_length": 6, "d_model": 8, "n_heads": 2, "d_ff": 8}),
}
PAIRS = [("torch", "paddle"), ("paddle", "torch")]


def build(framework, name, seed):
    model, arguments = CASES[name]
    kind = getattr(importlib.import_module(f"expkit.models.{framework}"), model)
    made = kind(**SIZES, **arguments)
    made.initialize(seed)
    return made


def trained(framework, name, root):
    """A driver after a few steps, its state on the disk below ``root``."""
    trainer = Trainer(
        model=build(framework, name, 0),
        driver=make_driver(framework),
        data=Data(FIELDS, FIELDS, batch_size=4),
        optimizer=Adam(lr=0.02),
        n_epochs=3,
        load_best=False,
        checkpoint=CheckpointStore(root),
    )
    trainer.fit()
    return trainer.driver


def taken(framework, name, state):
    driver = make_driver(framework)
    driver.setup(0)
    driver.prepare(build(framework, name, 1), None, None)
    driver.load_model_state(weights_for(driver, state))
    return driver


def outputs(driver):
    batch = Batch(FIELDS, np.arange(len(KEEP)))
    return driver.evaluate_step(batch, frozenset({"output", "loss"}))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_outputs_are_those_of_the_framework_that_trained(tmp_path, name, source, target):
    expected = outputs(trained(source, name, tmp_path))
    found = outputs(taken(target, name, saved(tmp_path)))
    assert found.keys() == expected.keys() == {"output", "loss", "loss_weight"}
    for output, value in expected.items():
        assert_close(found[output], value)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_weights_come_back_bit_for_bit(tmp_path, name, source, target):
    driver = trained(source, name, tmp_path)
    there = convert_state(saved(tmp_path), target)
    assert_equal(taken(target, name, there).model_state(), dict(there["model"]))
    back = convert_state(there, source)
    assert_equal(back["model"], driver.model_state())
    assert back["origin"]["linear_weights"] == list(driver.linear_weights())
