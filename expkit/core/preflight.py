"""What is known of the data before it is trained on, and of replicas while they are."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from expkit.core.batch import Batch, TrainLoader
from expkit.core.collective import Collective
from expkit.core.content import Sums, arrays_of, content_of, sets_of, single_sets_of, some_of
from expkit.core.driver import Driver
from expkit.core.errors import (
    ConfigError,
    DataError,
    DriverError,
    ExpkitError,
    Problem,
)
from expkit.core.failure import hint_of, step_error
from expkit.core.store import Store

_PROBE_SIZE = 2

T = TypeVar("T")


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
    own = {name: content_of(dataset) for name, dataset in sets_of(data).items()}
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


def _by_rank(facts: Sequence[T], describe: Callable[[T, T], str]) -> str:
    """In what other ranks differ from rank 0; empty where in nothing."""
    found = [
        f"rank {rank} has {describe(other, facts[0])}"
        for rank, other in enumerate(facts)
        if other != facts[0]
    ]
    return some_of(found, "; ")


def _other_content(other: tuple[Any, Sums], first: tuple[Any, Sums]) -> str:
    if other[0] != first[0]:
        return f"{other[0]} samples, rank 0 has {first[0]}"
    return _other_values(other[1], first[1])


def _other_values(other: Sums, first: Sums) -> str:
    names = [name for name in {**first, **other} if other.get(name) != first.get(name)]
    return f"other values of {some_of(names, ', ')} than rank 0"


def _other_signature(other: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')} {other.get(key)} (rank 0: {first.get(key)})"
        for key in {**first, **other}
        if other.get(key) != first.get(key)
    )


def check_targets(driver: Driver, data: Any, loss: Any) -> None:
    """Look at all targets of sets that lie in memory; two samples tell what the model gives.

    Those of other sets are looked at when a step fails: see `expkit.core.failure`.

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
    for name, dataset in single_sets_of(data).items():
        targets = arrays_of(dataset).get(loss.target)
        if targets is None or hasattr(targets, "offsets"):  # rows of different lengths
            continue
        shape = shape or _output_shape(driver, dataset, loss.output)
        if shape is None:
            return
        try:
            loss.check(np.asarray(targets), (len(targets), *shape[1:]))
        except DataError as error:
            raise DataError(f"{name}: {error}{hint_of(loss, np.asarray(targets))}") from error


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
