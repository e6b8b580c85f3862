"""The bundled models give the same outputs in the other framework, and come back bit for bit."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from expkit.checkpoint.convert import convert_state
from expkit.core.errors import MismatchError
from tests.convert.parts import assert_close, assert_equal, output, saved, taken, trained

pytest.importorskip("torch")
pytest.importorskip("paddle")

STREAM = np.random.default_rng(0)
TABLE = STREAM.standard_normal((8, 6)).astype(np.float32)
SQUARE = {"in_features": 6, "hidden": (6, 6), "out_features": 3}
IMAGES = STREAM.standard_normal((8, 2, 7, 6)).astype(np.float32)
TOKENS = STREAM.integers(0, 9, (8, 6))
CNN = {"in_channels": 2, "image_size": (7, 6), "channels": (3, 4), "hidden": 5, "out_features": 3}
TEXT_CNN = {"vocab_size": 9, "embedding_dim": 4, "num_filters": 3, "out_features": 3}
TRANSFORMER = {"vocab_size": 9, "max_length": 8, "out_features": 3, "d_model": 8, "n_heads": 2}

CASES = {
    "mlp": ("Mlp", SQUARE, TABLE),  # square weights fit both ways round
    "mlp-batch": ("Mlp", {**SQUARE, "norm": "batch"}, TABLE),
    "mlp-layer": ("Mlp", {**SQUARE, "norm": "layer"}, TABLE),
    "cnn": ("Cnn", CNN, IMAGES),
    "cnn-batch": ("Cnn", {**CNN, "norm": "batch"}, IMAGES),
    "text_cnn": ("TextCnn", TEXT_CNN, TOKENS),
    "transformer": ("Transformer", TRANSFORMER, TOKENS),
}
PAIRS = [("torch", "paddle"), ("paddle", "torch")]


def build(framework, name, seed):
    model, arguments, _ = CASES[name]
    made = getattr(importlib.import_module(f"expkit.models.{framework}"), model)(**arguments)
    made.initialize(seed)
    return made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_outputs_are_those_of_the_framework_that_trained(tmp_path, name, source, target):
    x = CASES[name][2]
    trainer = trained(source, build(source, name, 0), x, tmp_path)
    expected = output(trainer.driver, x)
    other = taken(target, build(target, name, 1), saved(tmp_path))
    assert_close(output(other, x), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_weights_come_back_bit_for_bit(tmp_path, name, source, target):
    trainer = trained(source, build(source, name, 0), CASES[name][2], tmp_path)
    there = convert_state(saved(tmp_path), target)
    assert_equal(taken(target, build(target, name, 1), there).model_state(), dict(there["model"]))
    back = convert_state(there, source)
    assert_equal(back["model"], trainer.driver.model_state())
    assert back["origin"]["linear_weights"] == list(trainer.driver.linear_weights())


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_the_numpy_driver_takes_and_gives_an_mlp(tmp_path, framework):
    trainer = trained("numpy", build("numpy", "mlp", 0), TABLE, tmp_path / "numpy")
    driver = taken(framework, build(framework, "mlp", 1), saved(tmp_path / "numpy"))
    assert_close(output(driver, TABLE), output(trainer.driver, TABLE))
    trainer = trained(framework, build(framework, "mlp", 0), TABLE, tmp_path / "other")
    driver = taken("numpy", build("numpy", "mlp", 1), saved(tmp_path / "other"))
    assert_close(output(driver, TABLE), output(trainer.driver, TABLE))


def test_another_model_of_another_framework_is_refused_by_name(tmp_path):
    trained("torch", build("torch", "mlp", 0), TABLE, tmp_path)
    with pytest.raises(MismatchError, match=r"another model: .*layers\.norm_0\.weight"):
        taken("paddle", build("paddle", "mlp-layer", 0), saved(tmp_path))
