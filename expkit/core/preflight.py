"""What is known of the data before it is trained on, and of replicas while they are."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch, TrainLoader
from expkit.core.collective import Collective
from expkit.core.driver import Driver
from expkit.core.errors import (
    ConfigError,
    DataError,
    DriverError,
    ExpkitError,
    MismatchError,
    Problem,
)
from expkit.core.evaluator import step_error
from expkit.core.progress import Progress
from expkit.core.store import Store

_PROBE_SIZE = 2
_COMPARED_ROWS = 64
_SAME_RELATIVE = 1e-5
_SHOWN = 5

T = TypeVar("T")
Sums = Mapping[str, int]


def check_data(data: Any) -> None:
    """Make sure that the data can give loaders.

    Raises:
        ConfigError: arrays, a data set or something else that gives none.
    """
    if not (hasattr(data, "train_loader") and hasattr(data, "eval_loaders")):
        message = f"is a {type(data).__name__}, which gives no loaders; allowed: expkit.data.Data"
        raise ConfigError([Problem("data", message, "data=Data(train, eval, batch_size=32)")])


def check_store(checkpoint: Any) -> None:
    """Make sure that checkpoints go to a store, where there is one.

    Raises:
        ConfigError: it is something else.
    """
    if checkpoint is not None and not isinstance(checkpoint, Store):
        message = f"is a {type(checkpoint).__name__}, which is no expkit.checkpoint.Store"
        raise ConfigError([Problem("checkpoint", message, "checkpoint=default")])


def check_same_data(group: Collective, loader: TrainLoader, data: Any) -> None:
    """Make sure that all ranks have the same data, of which each takes its own part; a collective.

    Of sets that lie in memory some rows are compared, of others the length.

    Args:
        group: the ranks; one alone compares nothing.
        loader: this rank's.
        data: has ``train`` and ``eval`` (`expkit.data.Data`); of what has not, only the loader is
            compared.

    Raises:
        DataError: on all ranks; names the set, the ranks and what differs.
    """
    if group.world_size == 1:
        return
    own = {name: _content(dataset) for name, dataset in _sets(data).items()}
    ranks = group.all_gather((own, loader.signature))
    for name in dict.fromkeys(name for sets, _ in ranks for name in sets):
        difference = _by_rank([sets.get(name, ("no", {})) for sets, _ in ranks], _other_content)
        if difference:
            raise DataError(
                f"{name} is not the same on all ranks: {difference}. Each rank takes its own part "
                "of the same samples; a source that draws or splits must do so from its seed: "
                "data.source"
            )
    difference = _by_rank([signature for _, signature in ranks], _other_signature)
    if difference:
        raise DataError(
            f"the steps of an epoch are not the same on all ranks: {difference}. All ranks need "
            "the same batch size, limits and seed, and a sampler whose order follows from the seed"
        )


def _sets(data: Any) -> dict[str, Any]:
    """The sets of `expkit.data.Data` by the name that an error gives them."""
    train, named = getattr(data, "train", None), getattr(data, "eval", None)
    sets = {} if train is None else {"the training set": train}
    if isinstance(named, Mapping):
        sets |= {f"the evaluation set {name}".rstrip(): one for name, one in named.items()}
    return sets


def _arrays(dataset: Any) -> Mapping[str, Any]:
    """The columns of a set that lies in memory."""
    arrays = getattr(dataset, "arrays", None)
    return arrays if isinstance(arrays, Mapping) else {}


def _content(dataset: Any) -> tuple[Any, Sums]:
    """What ranks compare of a set: its length, and a checksum of some rows of each array."""
    try:
        length = len(dataset)
    except TypeError:  # a user's own, which has none
        return None, {}
    sums = {}
    for name, rows in _compared_rows(dataset).items():
        kind = zlib.crc32(f"{rows.dtype.str} {rows.shape}".encode())
        sums[name] = zlib.crc32(rows.tobytes(), kind)
    return length, sums


def _compared_rows(dataset: Any) -> dict[str, NDArray[Any]]:
    """Some rows of each array of a set that lies in memory."""
    rows = {}
    for name, array in _arrays(dataset).items():
        if isinstance(array, np.ndarray) and not array.dtype.hasobject:
            length = len(array)
            places = np.linspace(0, length - 1, min(length, _COMPARED_ROWS)).astype(np.int64)
            rows[name] = array[places]
    return rows


def _by_rank(facts: Sequence[T], describe: Callable[[T, T], str]) -> str:
    """In what other ranks differ from rank 0; empty where in nothing."""
    found = [
        f"rank {rank} has {describe(other, facts[0])}"
        for rank, other in enumerate(facts)
        if other != facts[0]
    ]
    return _some(found, "; ")


def _other_content(other: tuple[Any, Sums], first: tuple[Any, Sums]) -> str:
    if other[0] != first[0]:
        return f"{other[0]} samples, rank 0 has {first[0]}"
    return _other_values(other[1], first[1])


def _other_values(other: Sums, first: Sums) -> str:
    names = [name for name in {**first, **other} if other.get(name) != first.get(name)]
    return f"other values of {_some(names, ', ')} than rank 0"


def _other_signature(other: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')} {other.get(key)} (rank 0: {first.get(key)})"
        for key in {**first, **other}
        if other.get(key) != first.get(key)
    )


def _some(items: Sequence[str], separator: str) -> str:
    rest = len(items) - _SHOWN
    return separator.join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


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
    shape = None
    for name, dataset in _sets(data).items():
        targets = _arrays(dataset).get(loss.target)
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


def data_signature(loader: TrainLoader, data: Any) -> dict[str, Any]:
    """What a checkpoint remembers of the data, as JSON values: how epochs are cut, and the content.

    Args:
        loader: of the training set.
        data: has ``train`` (`expkit.data.Data`); of what has not, only the loader is remembered.
    """
    train = _sets(data).get("the training set")
    if train is None:
        return dict(loader.signature)
    samples, _ = _content(train)
    columns = {name: _summary(rows) for name, rows in _compared_rows(train).items()}
    return loader.signature | {"content": {"samples": samples, "columns": columns}}


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
    if saved == own or progress.epoch_step == 0:
        return
    if progress.epoch_step == -(-saved["samples_per_epoch"] // saved["samples_per_step"]):
        progress.epoch_step = progress.steps_per_epoch or 0
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
    if saved is None or own is None:
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
        difference = f"other values of {_some(names, ', ')}"
    else:
        return
    raise MismatchError(
        f"the checkpoint is of a run on another training set: this one has {difference}. Give the "
        "run its own data.source, or begin a new run from its weights (try: init_from=RUN in place "
        "of resume=RUN)"
    )


def _without_content(signature: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in signature.items() if key != "content"}


def check_replicas(driver: Driver, step: int) -> None:
    """Make sure that ranks which hold whole models hold the same one, to the last bit.

    A collective, unless there is one rank or each holds only a part.

    Raises:
        DriverError: on all ranks; names the step, the ranks and the arrays that differ.
    """
    if driver.world_size == 1 or driver.evaluates_together:
        return
    state = driver.model_state()
    own = {
        path: zlib.crc32(np.ascontiguousarray(state[path]).view(np.uint8).data)
        for path in sorted(state)
    }
    totals = driver.all_gather(zlib.crc32(repr(own).encode()))
    if len(set(totals)) > 1:
        difference = _by_rank(driver.all_gather(own), _other_values)
        raise DriverError(
            f"the weights are not the same on all ranks after step {step}: {difference}. Usual "
            "reasons: a callback that changes weights on one rank only, or that leaves a step out "
            "on one rank only"
        )
