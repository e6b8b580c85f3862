"""State trees: nested dicts by parameter path with NumPy arrays and JSON values as leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import MismatchError, NonFiniteLossError


def rank_key(rank: int) -> str:
    """The key of what belongs to one rank alone, such as its random state: ``0003``."""
    return f"{rank:04d}"


def check_same_paths(own: Mapping[str, Any], state: Mapping[str, Any], of: str = "model") -> None:
    """Make sure that a state has exactly the paths that a model has.

    Args:
        own: what the model has, by path.
        state: what the checkpoint has.
        of: what they are of, where it is not the model.

    Raises:
        MismatchError: it lacks some or has others besides; names the first three of each.
    """
    missing = sorted(set(own) - set(state))
    unexpected = sorted(set(state) - set(own))
    parts = [
        f"{what} {', '.join(paths[:3])}{' ...' if len(paths) > 3 else ''}"
        for what, paths in (("it lacks", missing), ("it has besides", unexpected))
        if paths
    ]
    if parts:
        raise MismatchError(f"the checkpoint is of another {of}: {'; '.join(parts)}")


def check_same_accumulators(own: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Make sure that a state has exactly what an optimizer keeps.

    Args:
        own: what the optimizer keeps, by ``<path>/<accumulator>``.
        state: what the checkpoint has.

    Raises:
        MismatchError: it is of an optimizer that keeps other things, or of other parameters.
    """
    kept, saved = (sorted({key.rpartition("/")[2] for key in each}) for each in (own, state))
    if kept != saved:
        raise MismatchError(
            f"the checkpoint has that of another optimizer ({', '.join(saved) or 'nothing'}), "
            f"this one keeps {', '.join(kept) or 'nothing'}"
        )
    check_same_paths(own, state, "optimizer")


def check_same_shape(
    path: str, own: tuple[int, ...], state: tuple[int, ...], of: str = "model"
) -> None:
    """Make sure that an array fits its parameter; see `check_same_paths`.

    Raises:
        MismatchError: the shapes differ.
    """
    if tuple(own) != tuple(state):
        raise MismatchError(
            f"the checkpoint is of another {of}: {path} has shape {tuple(state)} there, "
            f"{tuple(own)} here"
        )


def check_weights(model: Mapping[str, NDArray[Any]], step: int) -> None:
    """Make sure that no NaN is kept in place of good weights; infinities may be meant, as in masks.

    Raises:
        NonFiniteLossError: names the first array with a NaN.
    """
    for path, array in model.items():
        if array.dtype.kind not in "biu" and _has_nan(array):  # bfloat16 is of kind V
            raise NonFiniteLossError(
                f"{path} holds NaN after step {step}, though the losses up to it were finite: a "
                "gradient was not; lower optimizer.lr, or set trainer.clip_norm=1.0. This state is "
                "not kept"
            )


def _has_nan(array: NDArray[Any]) -> bool:
    with np.errstate(invalid="ignore"):  # what a signalling NaN of bfloat16 is to isnan
        return bool(np.isnan(array).any())


_PARTS = ("model", "optimizer", "scaler", "ranks", "trainer", "schedules", "callbacks")
"""What a run needs to go on."""


def check_origin(state: Mapping[str, Any], framework: str) -> None:
    """Make sure that a run goes on in the framework that it began in, and from all of its state.

    Raises:
        MismatchError: it began in another one, whose optimizer and random state say nothing here,
            or there is no more than weights.
    """
    hint = "its weights can begin a new one (try: init_from=RUN in place of resume=RUN)"
    began = state.get("origin", {}).get("framework", framework)
    if began != framework:
        raise MismatchError(
            f"the checkpoint is of a run on {began}, this one is on {framework}: a run goes on "
            f"where it began; {hint}"
        )
    missing = [part for part in _PARTS if part not in state]
    if missing:
        raise MismatchError(
            f"the checkpoint does not hold all that a run needs to go on: it lacks "
            f"{', '.join(missing)}; {hint}"
        )
