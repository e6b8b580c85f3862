"""What can be known of the data before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from expkit.core.batch import Batch
from expkit.core.driver import Driver
from expkit.core.errors import DataError

_PROBE_SIZE = 2


def check_targets(driver: Driver, data: Any, loss: Any) -> None:
    """Look at all targets of sets that lie in memory; one evaluation of two samples tells what the model gives.

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
    sets: Mapping[str, Any] = {"the training set": data.train} | {
        f"the evaluation set {name}".rstrip(): one for name, one in data.eval.items()
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
    host = driver.evaluate_step(Batch(dataset.fetch(indices), indices), frozenset({output}))
    return host[output].shape if output in host else None
