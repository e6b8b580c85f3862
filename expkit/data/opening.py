"""What a user gives as a set, read as what it is: samples by index, a stream, or ready batches."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.concat import ConcatDataset
from expkit.data.dataset import CollateFunction, Dataset, as_dataset, is_column
from expkit.data.own.frameworks import is_iterable_set, is_loader
from expkit.data.own.loader import OwnLoader
from expkit.data.own.stream import Stream
from expkit.data.splits import refuse_dict_of_splits

AnySet = Dataset | Stream | OwnLoader

_HINTS = {
    "sampler": "sampler=random",
    "data.num_workers": "data.num_workers=0",
    "data.global_batch_size": "data.global_batch_size=null",
    "data.drop_last": "data.drop_last=false",
    "data.eval_batch_size": "data.eval_batch_size=null",
}
_OF_INDICES = ("sampler", "data.num_workers")
_OF_SIZES = ("data.batch_size", "data.global_batch_size", "data.drop_last")


def open_training_set(given: Any, collate: CollateFunction | None) -> AnySet:
    """One set, or several by name as one.

    Raises:
        DataError: an empty set, something that is none, or several that cannot be one.
    """
    if isinstance(given, Mapping) and type(given).__module__.startswith("datasets."):
        if len(given) > 1:
            refuse_dict_of_splits(given, "the training set is a")
        (given,) = given.values()
    if not isinstance(given, Mapping) or not given or any(map(is_column, given.values())):
        return open_set(given, collate, "training set")
    parts = {}
    for name, one in given.items():
        part = open_set(one, collate, f"training set {name}")
        if isinstance(part, Stream | OwnLoader):
            raise DataError(
                f"the training set {name} is {_kind(part)}, and several sets are put together by "
                "index; allowed: sets with a length, or one stream that reads from all"
            )
        parts[name] = part
    return ConcatDataset(parts, collate)


def open_evaluation_sets(given: Any, collate: CollateFunction | None) -> dict[str, AnySet]:
    """Sets by name; a single one has the name ""."""
    named = given if _is_mapping_of_sets(given) else {} if given is None else {"": given}
    return {
        name: open_set(one, collate, f"evaluation set {name}".rstrip())
        for name, one in named.items()
    }


def check_apart(train: AnySet | None, evaluation: Mapping[str, AnySet]) -> None:
    """Make sure that no evaluation moves what training is reading.

    Raises:
        DataError: names the evaluation set that would.
    """
    for name, each in evaluation.items():
        are_streams = isinstance(train, Stream) and isinstance(each, Stream)
        are_loaders = isinstance(train, OwnLoader) and isinstance(each, OwnLoader)
        if (are_streams or are_loaders) and train.is_same(each):  # type: ignore[union-attr,arg-type]
            raise DataError(
                f"{f'the evaluation set {name}'.rstrip()} is the object that the training set is, "
                "with one state for both; allowed: a second one like it"
            )


def open_set(given: Any, collate: CollateFunction | None, what: str) -> AnySet:
    """One set.

    Args:
        given: anything that `as_dataset` takes, a stream, or a loader.
        collate: for samples that come one by one; None = the usual one.
        what: it is, for errors.

    Raises:
        DataError: it is empty, or none of these.
        ConfigError: a collate function that nothing would call.
    """
    what = f"the {what}"
    if isinstance(given, type):
        raise DataError(f"{what} is the class {given.__name__}; allowed: an object of it")
    if isinstance(given, Stream | OwnLoader):
        _refuse_collate(collate, _kind(given))
        return given.named(what)
    if is_loader(given):
        _refuse_collate(collate, "a loader")
        return OwnLoader(given, what)
    if is_stream(given):
        return Stream(given, collate, what)
    dataset = as_dataset(given, collate)
    if _length(dataset, f"{what}, of type {type(given).__name__},") == 0:
        raise DataError(f"{what} is empty; allowed: at least 1 sample")
    return dataset


def _length(dataset: Dataset, what: str) -> int:
    try:
        return len(dataset)
    except Exception as error:
        raise DataError(
            f"{what} has no length: {type(error).__name__}: {error}; allowed: __len__ that gives "
            "the number of samples"
        ) from error


def is_stream(value: Any) -> bool:
    """Whether samples come from it one after the other, and by no index."""
    if is_iterable_set(value) or inspect.isgeneratorfunction(value):
        return True
    if isinstance(value, Mapping | str | bytes | set | frozenset):
        return False
    is_by_index = hasattr(value, "__getitem__") or hasattr(value, "fetch")
    return hasattr(value, "__iter__") and not (is_by_index and hasattr(value, "__len__"))


def check_effects(
    train: AnySet | None, evaluation: Mapping[str, AnySet], given: Collection[str]
) -> None:
    """Make sure that what is given beside the sets has an effect on them.

    Args:
        train: the training set.
        evaluation: the evaluation sets by name.
        given: the keys whose values are not the defaults.

    Raises:
        ConfigError: names what has none.
    """
    unused: dict[str, str] = {}
    if isinstance(train, Stream):
        unused = dict.fromkeys(_OF_INDICES, "the training set is a stream in an order of its own")
    elif isinstance(train, OwnLoader):
        unused = dict.fromkeys(
            (*_OF_INDICES, *_OF_SIZES), "the training set comes in ready batches"
        )
    if evaluation and all(isinstance(each, OwnLoader) for each in evaluation.values()):
        unused["data.eval_batch_size"] = "the evaluation sets come in ready batches"
    _refuse(unused, given)


def check_own_sizes(given: Collection[str]) -> None:
    """Make sure that nothing else is said of the sizes of batches that a sampler makes.

    Args:
        given: the keys whose values are not the defaults.

    Raises:
        ConfigError: names what is.
    """
    _refuse(dict.fromkeys(_OF_SIZES, "the sampler makes the batches"), given)


def _refuse(unused: Mapping[str, str], given: Collection[str]) -> None:
    problems = [
        Problem(key, f"has no effect: {reason}; allowed: to leave it out", _HINTS.get(key, ""))
        for key, reason in unused.items()
        if key in given
    ]
    if problems:
        raise ConfigError(problems)


def check_no_seed(sampler: Any, seed: int) -> None:
    """Make sure that no order is asked for where the training set has one of its own.

    Args:
        sampler: a `Random`, which is there by default.
        seed: the run's seed, which it has by default.

    Raises:
        ConfigError: it has another one.
    """
    if sampler.seed not in (None, seed):
        message = f"is {sampler.seed}, but has no effect: the training set has an order of its own"
        raise ConfigError([Problem("sampler.seed", message, "sampler.seed=${seed}")])


def _refuse_collate(collate: CollateFunction | None, kind: str) -> None:
    if collate is not None:
        message = f"has no effect: {kind} has its own; allowed: null"
        raise ConfigError([Problem("data.collate", message, "data.collate=null")])


def _kind(given: Stream | OwnLoader) -> str:
    return "a stream" if isinstance(given, Stream) else "a loader"


def _is_mapping_of_sets(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return not value or not all(is_column(part) for part in value.values())
