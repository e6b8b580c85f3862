"""Training a model, taking its weights into another, and comparing what both give."""

from __future__ import annotations

from typing import Any

import numpy as np

from expkit.checkpoint import CheckpointStore
from expkit.checkpoint.convert import weights_for
from expkit.core.batch import Batch
from expkit.core.trainer import Trainer
from expkit.data import Data
from expkit.losses import CrossEntropy
from expkit.optimizers import Adam
from tests.cases.parts import make_driver

CLASSES = 3


def trained(framework: str, model: Any, x: np.ndarray, root: Any) -> Trainer:
    """A trainer after a few steps on random labels, its state on the disk below ``root``."""
    y = np.random.default_rng(1).integers(0, CLASSES, len(x))
    trainer = Trainer(
        model=model,
        driver=make_driver(framework),
        data=Data({"x": x, "y": y}, {"x": x, "y": y}, batch_size=4),
        optimizer=Adam(lr=0.01),
        loss=CrossEntropy(),
        n_epochs=2,
        load_best=False,
        checkpoint=CheckpointStore(root),
    )
    trainer.fit()
    return trainer


def saved(root: Any) -> dict[str, Any]:
    """The state on the disk."""
    return CheckpointStore(root).load("last")[0]


def taken(framework: str, model: Any, state: dict[str, Any]) -> Any:
    """A driver whose model has the weights of a state, of whatever framework it is."""
    driver = make_driver(framework)
    driver.setup(0)
    driver.prepare(model, None, CrossEntropy())
    driver.load_model_state(weights_for(driver, state))
    return driver


def output(driver: Any, x: np.ndarray) -> np.ndarray:
    batch = Batch({"x": x}, np.arange(len(x)))
    return driver.evaluate_step(batch, frozenset({"output"}))["output"]


def assert_equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    """The same arrays, bit for bit, under the same names."""
    assert left.keys() == right.keys()
    for path, array in left.items():
        np.testing.assert_array_equal(array, right[path], err_msg=path)
        assert array.dtype == right[path].dtype, path


def assert_close(left: np.ndarray, right: np.ndarray) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
