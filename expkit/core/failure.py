"""What is said of a step that failed: the samples in it, and whether their targets can be."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch, listed
from expkit.core.driver import Driver
from expkit.core.errors import DataError, StepError


def step_error(what: str, batch: Batch, error: Exception) -> StepError:
    """An error of a step with the data-set indices of its micro-batch in it."""
    indices = batch.indices
    message = f"{what} on samples {listed(indices)} failed: {type(error).__name__}: {error}"
    if len(indices) == 1:
        message += " (a batch of one sample; data.drop_last=true leaves a short last batch out)"
    return StepError(message)


def raise_failure(what: str, batch: Batch, error: Exception, driver: Driver, loss: Any) -> NoReturn:
    """Raise the error of a step that failed: that of its targets, where these cannot be.

    Sets in memory are looked at before the first step. What is read sample by sample is looked at
    here, when something went wrong: so a step costs nothing.

    Args:
        what: was done.
        batch: with what.
        error: what the driver raised.
        driver: holds the model.
        loss: a spec of `expkit.losses` with ``check``; the targets of others are not looked at.

    Raises:
        DataError: the loss cannot take the targets; names the sample.
        StepError: anything else; names the samples.
    """
    wrong = _target_error(what, batch, driver, loss)
    if wrong is not None:
        raise wrong from None  # it says all
    raise step_error(what, batch, error) from error


def _target_error(what: str, batch: Batch, driver: Driver, loss: Any) -> DataError | None:
    # Where ranks must evaluate together, the others would not come.
    if not hasattr(loss, "check") or driver.evaluates_together:
        return None
    try:
        targets = np.asarray(batch.fields[loss.target])
        shape = driver.evaluate_step(batch, frozenset({loss.output}))[loss.output].shape
        wrong = _refusal(loss, targets, shape)
        if wrong is None:
            return None
        rows = range(len(batch.indices))
        refused = (p for p in rows if _refusal(loss, targets[p : p + 1], shape) is not None)
        place = next(refused, None)
    except Exception:  # of a model or a device that can do nothing any more
        return None
    if place is None:
        return DataError(f"{what}: {wrong}")
    return DataError(
        f"sample {batch.indices[place]}, at position {place} of its batch in {what}: {wrong}"
        f"{hint_of(loss, targets)}"
    )


def _refusal(loss: Any, targets: NDArray[Any], shape: tuple[int, ...]) -> DataError | None:
    try:
        loss.check(targets, (len(targets), *shape[1:]))
    except DataError as error:
        return error
    return None


def hint_of(loss: Any, targets: NDArray[Any]) -> str:
    """The override that leaves a negative label out, where it is the only one and none is left."""
    if getattr(loss, "ignore_index", 0) is not None or targets.dtype.kind != "i":
        return ""
    negative = np.unique(targets[targets < 0])
    if len(negative) != 1:
        return ""
    return f" (try: loss.ignore_index={negative[0]}, if it stands for no label)"
