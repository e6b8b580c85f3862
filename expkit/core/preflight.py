"""What is known of the data before it is trained on, and of weights before they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch
from expkit.core.driver import Driver
from expkit.core.errors import ConfigError, DataError, ExpkitError, NonFiniteLossError, Problem
from expkit.core.evaluator import step_error
from expkit.core.progress import Progress

_PROBE_SIZE = 2


def check_data(data: Any) -> None:
    """Make sure that the data can give loaders.

    Raises:
        ConfigError: arrays, a data set or something else that gives none.
    """
    if not (hasattr(data, "train_loader") and hasattr(data, "eval_loaders")):
        message = f"is a {type(data).__name__}, which gives no loaders; allowed: expkit.data.Data"
        raise ConfigError([Problem("data", message, "data=Data(train, eval, batch_size=32)")])


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


def check_position(progress: Progress, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Make sure that a position in an epoch means the samples that it meant when it was saved.

    Between two epochs the data may be cut in another way; an epoch that has ended stays ended.

    Args:
        progress: the position, as it was saved.
        saved: how epochs were cut into steps then (`TrainLoader.signature`).
        own: how they are cut now.

    Raises:
        ConfigError: the position is inside an epoch whose steps are other ones now: samples would
            be left out or trained twice.
    """
    if saved == own or progress.epoch_step == 0:
        return
    if progress.epoch_step == -(-saved["samples_per_epoch"] // saved["samples_per_step"]):
        progress.epoch_step = progress.steps_per_epoch or 0
        return
    changes = ", ".join(
        f"{key.replace('_', ' ')} {own[key]} (was {saved[key]})"
        for key in own
        if own[key] != saved.get(key)
    )
    message = (
        f"stands inside epoch {progress.epoch + 1}, after {progress.epoch_step} of its steps, and "
        f"the steps are other ones now: {changes}. Go on with the data, batch size, accumulation, "
        "limits and seed of the run, or begin a new run from its weights"
    )
    raise ConfigError([Problem("resume", message, "init_from=RUN in place of resume=RUN")])


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
