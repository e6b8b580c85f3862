"""What is known of the data before it is trained on, and of weights before they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch
from expkit.core.driver import Driver
from expkit.core.errors import DataError, ExpkitError, NonFiniteLossError
from expkit.core.evaluator import step_error

_PROBE_SIZE = 2


def check_targets(driver: Driver, data: Any, loss: Any) -> None:
    """Look at all targets of sets that lie in memory; two samples tell what the model gives.

    Args:
        driver: holds the model.
        data: has ``train`` and ``eval`` (`expkit.data.Data`).
        loss: a spec of `expkit.losses` with ``check``; anything else is not looked at.

    Raises:
        DataError: targets that the loss cannot take; names the set, the first position and the
            value.
    """
    if not hasattr(loss, "check"):
        return
    sets: Mapping[str, Any] = {"the training set": getattr(data, "train", None)} | {
        f"the evaluation set {name}".rstrip(): one
        for name, one in getattr(data, "eval", {}).items()
    }
    shape = None
    for name, dataset in sets.items():
        targets = getattr(dataset, "arrays", {}).get(loss.target)
        if targets is None:
            continue
        shape = shape or _output_shape(driver, dataset, loss.output)
        if shape is None:
            return
        try:
            loss.check(np.asarray(targets), (len(targets), *shape[1:]))
        except DataError as error:
            raise DataError(f"{name}: {error}") from error


def _output_shape(driver: Driver, dataset: Any, output: str) -> tuple[int, ...] | None:
    indices = np.arange(min(_PROBE_SIZE, len(dataset)))
    batch = Batch(dataset.fetch(indices), indices)
    try:
        host = driver.evaluate_step(batch, frozenset({output}))
    except ExpkitError:
        raise
    except Exception as error:
        types = ", ".join(
            f"{name} {value.dtype}"
            for name, value in batch.fields.items()
            if hasattr(value, "dtype")
        )
        raise step_error(f"a first look at the model ({types})", batch, error) from error
    return host[output].shape if output in host else None


def check_weights(model: Mapping[str, NDArray[Any]], step: int) -> None:
    """Make sure that no NaN is kept in place of good weights; infinities may be meant, as in masks.

    Raises:
        NonFiniteLossError: names the first array with a NaN.
    """
    for path, array in model.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise NonFiniteLossError(
                f"{path} holds NaN after step {step}, though the losses up to it were finite: a "
                "gradient was not; lower optimizer.lr, or set trainer.clip_norm=1.0. This state is "
                "not kept"
            )
