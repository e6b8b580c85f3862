"""What a position in the data means, and whether it still means that when a run goes on."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import TrainLoader
from expkit.core.content import compared_rows, content_of, sets_of, some_of
from expkit.core.errors import ConfigError, MismatchError, Problem
from expkit.core.progress import Progress

_SAME_RELATIVE = 1e-5


def data_signature(loader: TrainLoader, data: Any) -> dict[str, Any]:
    """What a checkpoint remembers of the data, as JSON values: how epochs are cut, and the content.

    Args:
        loader: of the training set.
        data: has ``train`` (`expkit.data.Data`); of what has not, only the loader is remembered.
    """
    train = sets_of(data).get("the training set")
    if train is None:
        return dict(loader.signature)
    samples, _ = content_of(train)
    columns = {name: _summary(rows) for name, rows in compared_rows(train).items()}
    return loader.signature | {"content": {"samples": samples, "columns": columns}}


def check_position(progress: Progress, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Make sure that a position in an epoch means the samples that it meant when it was saved.

    Between two epochs the data may be cut in another way; an epoch that has ended stays ended.

    Args:
        progress: the position, as it was saved.
        saved: what the data were then (`data_signature`); of an older checkpoint, how epochs were
            cut into steps.
        own: what they are now.

    Raises:
        MismatchError: the samples are other ones.
        ConfigError: the position is inside an epoch whose steps are other ones now: samples would
            be left out or trained twice.
    """
    _check_same_samples(saved.get("content"), own.get("content"))
    saved, own = _without_content(saved), _without_content(own)
    if saved == own or progress.epoch_step == 0 or progress.ends_epoch:
        return
    if progress.epoch_step == _steps_of(saved):
        progress.ends_epoch = progress.steps_per_epoch is None
        progress.epoch_step = progress.steps_per_epoch or progress.epoch_step
        return
    changes = ", ".join(
        f"{key.replace('_', ' ')} {own[key]} (was {saved.get(key)})"
        for key in own
        if own[key] != saved.get(key)
    )
    message = (
        f"stands inside epoch {progress.epoch + 1}, after {progress.epoch_step} of its steps, and "
        f"the steps are other ones now: {changes}. Go on with the data, batch size, accumulation, "
        "limits and seed of the run, or begin a new run from its weights"
    )
    raise ConfigError([Problem("resume", message, "init_from=RUN in place of resume=RUN")])


def _check_same_samples(saved: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> None:
    """Make sure that a run goes on with the samples that it began with, as far as they are known.

    Raises:
        MismatchError: names what differs.
    """
    if saved is None or own is None or None in (saved["samples"], own["samples"]):
        return
    before, now = saved["columns"], own["columns"]
    if not (before and now):  # read from elsewhere, then or now
        before = now = {}
    names = [
        name for name in {**before, **now} if not _is_same_column(before.get(name), now.get(name))
    ]
    if saved["samples"] != own["samples"]:
        difference = f"{own['samples']} samples, it had {saved['samples']}"
    elif names:
        difference = f"other values of {some_of(names, ', ')}"
    else:
        return
    raise MismatchError(
        f"the checkpoint is of a run on another training set: this one has {difference}. Give the "
        "run its own data.source, or begin a new run from its weights (try: init_from=RUN in place "
        "of resume=RUN)"
    )


def _steps_of(signature: Mapping[str, Any]) -> int | None:
    """Steps of an epoch that is cut so, where it has a length."""
    for unit in ("samples", "batches"):
        length = signature.get(f"{unit}_per_epoch")
        if length is not None:
            return -(-int(length) // int(signature[f"{unit}_per_step"]))
    return None


def _summary(rows: NDArray[Any]) -> list[Any]:
    """What is remembered of a column: its checksum, or sums of real numbers.

    Another processor may compute those in another last digit; a run may go on there.
    """
    kind = f"{rows.dtype.name} {rows.shape[1:]}"
    if rows.dtype.kind != "f":
        return [kind, zlib.crc32(rows.tobytes())]
    finite = np.nan_to_num(rows.reshape(-1).astype(np.float64))
    weights = np.cos(np.arange(finite.size))  # so that the order counts
    return [kind, float(finite @ weights), float(np.abs(finite).sum())]


def _is_same_column(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    if one is None or other is None or one[0] != other[0] or len(one) != len(other):
        return False
    if len(one) == 2:
        return bool(one[1] == other[1])
    tolerance = _SAME_RELATIVE * max(one[2], other[2])
    return bool(abs(one[1] - other[1]) <= tolerance and abs(one[2] - other[2]) <= tolerance)


def _without_content(signature: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in signature.items() if key != "content"}
