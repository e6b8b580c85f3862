"""What has to be known of the frameworks' own loaders, by the attributes that they have."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from expkit.core.errors import DataError
from expkit.data.own.hugging_face import is_split

_FRAMEWORKS = ("torch", "torchdata", "paddle")
_THREAD = "(_thread_loop)"
"""How the names of threads end that pass on what Paddle's workers read."""
_THREAD_ENDS_S = 5.0

# A StatefulDataLoader calls what torch has deprecated, and nobody who has one can help it.
warnings.filterwarnings("ignore", "'set_vital' is deprecated", UserWarning)


def is_loader(value: Any) -> bool:
    """Whether it is a loader of torch or Paddle, or made like one."""
    return hasattr(value, "batch_sampler") and hasattr(value, "dataset")


def parts_of(loader: Any) -> tuple[Any, ...]:
    """The objects that the order of a loader may depend on, itself left out."""
    found = [getattr(loader, "dataset", None)]
    for name in ("sampler", "batch_sampler"):
        found += chain_of(getattr(loader, name, None))
    return tuple({id(part): part for part in found if part is not None}.values())


def keeps_workers(loader: Any) -> bool:
    """Whether its workers, and what they have drawn, would go on from epoch to epoch."""
    return any(getattr(loader, f"{dash}persistent_workers", False) for dash in ("", "_"))


def length_of(loader: Any) -> int | None:
    """How many batches an epoch has; None where that is not known exactly.

    What a loader of an iterable data set says is an estimate, even where that has a length.
    """
    if is_iterable_set(getattr(loader, "dataset", None)) or not hasattr(loader, "__len__"):
        return None
    try:
        return len(loader)
    except Exception:  # some depend on a length that may not be there
        return None


def is_iterable_set(dataset: Any) -> bool:
    """Whether it is an IterableDataset of torch, Paddle or Hugging Face."""
    return any(each.__name__ == "IterableDataset" for each in type(dataset).__mro__)


def chain_of(sampler: Any) -> list[Any]:
    """A sampler, and those that it takes its indices from."""
    chain = [sampler]
    while (inner := getattr(chain[-1], "sampler", None)) is not None:
        chain.append(inner)
    return chain


def is_of_framework(sampler: Any) -> bool:
    """Whether a sampler, with those that it takes its indices from, is the framework's own."""
    return all(_home(type(part).__iter__) in _FRAMEWORKS for part in chain_of(sampler))


def replicas(sampler: Any) -> int:
    """Among how many ranks a sampler, or one that it takes its indices from, shares them out."""
    return max(_replicas(part) for part in chain_of(sampler))


def replicas_of(loader: Any, rank: int, world_size: int, what: str) -> int:
    """Among how many ranks a loader shares out the samples itself: 1 or all.

    Raises:
        DataError: among others than there are, or by a sampler of which it is not known that it
            gives each rank equally many.
    """
    for part in parts_of(loader):
        if world_size > 1 and is_split(part):
            raise DataError(
                f"{what} reads a stream that has been split by node, and each rank would train on "
                "its share of a part; allowed: the whole stream"
            )
        number = _replicas(part)
        if number == 1:
            continue
        name = type(part).__name__
        own_rank = getattr(part, "rank", getattr(part, "local_rank", None))
        if (number, own_rank) != (world_size, rank):
            raise DataError(
                f"{what} has a {name} for rank {own_rank} of {number}, and this is rank {rank} of "
                f"{world_size}; allowed: its own rank and number of ranks, or a sampler that is "
                "not distributed: each rank then takes its share of every batch"
            )
        if _home(getattr(type(part), "__iter__", None)) not in _FRAMEWORKS:
            raise DataError(
                f"{what} has a {name}, of which it is not known whether each rank gets equally "
                "many samples; allowed: the framework's own distributed sampler, or one that is "
                "not distributed: each rank then takes its share of every batch"
            )
        return world_size
    return 1


def _replicas(part: Any) -> int:
    found: Any = getattr(part, "num_replicas", None) or getattr(part, "nranks", 1)
    return int(found)


def _home(value: Any) -> str:
    """The package in which something is defined; of what is built in there is none."""
    return str(getattr(value, "__module__", "")).partition(".")[0]


def reader_of(loader: Any) -> Callable[[Any], Iterator[Any]] | None:
    """How a loader of a framework is read; None for anything else."""
    if not is_loader(loader):
        return None
    if _home(type(loader)) != "paddle":
        return _read_torch
    return _read_paddle_with_workers if loader.num_workers else _read_paddle


def _read_torch(loader: Any) -> Iterator[Any]:
    return _until_done(loader, _new_iterator(loader))


def _until_done(loader: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    finally:
        _end(loader, iterator)


def _read_paddle(loader: Any) -> Iterator[Any]:
    """What the loader would read in a thread of its own, where an error would never be heard of."""
    dataset, functions = loader.dataset, sys.modules["paddle.io.dataloader.collate"]
    if not loader.auto_collate_batch:
        convert = loader.collate_fn or functions.default_convert_fn
        is_iterable = is_iterable_set(dataset)
        yield from map(convert, dataset if is_iterable else map(dataset.__getitem__, _all(dataset)))
        return
    collate = loader.collate_fn or functions.default_collate_fn
    if not is_iterable_set(dataset):
        for indices in loader.batch_sampler:
            yield collate([dataset[index] for index in indices])
        return
    samples = iter(dataset)
    while batch := list(itertools.islice(samples, loader.batch_size)):
        if len(batch) == loader.batch_size or not loader.drop_last:
            yield collate(batch)


def _all(dataset: Any) -> range:
    return range(len(dataset))


def _read_paddle_with_workers(loader: Any) -> Iterator[Any]:
    """A worker's error kills a thread, and all that is told here is that it has died of one."""
    with _errors_kept_by_threads():
        iterator = _new_iterator(loader)
        try:
            yield from iterator
        except SystemError as died:
            thread = iterator._thread
            thread.join(_THREAD_ENDS_S)
            if hasattr(thread, "error"):
                raise thread.error from died
            raise
        finally:
            _end(loader, iterator)


@contextmanager
def _errors_kept_by_threads() -> Iterator[None]:
    """A thread of Paddle's loaders has what it died of as ``error``."""
    before = threading.excepthook

    def keep(args: threading.ExceptHookArgs) -> None:
        if args.thread is not None and args.thread.name.endswith(_THREAD):
            args.thread.error = args.exc_value  # type: ignore[attr-defined]
        else:
            before(args)

    threading.excepthook = keep
    try:
        yield
    finally:
        if threading.excepthook is keep:
            threading.excepthook = before


def _new_iterator(loader: Any) -> Any:
    """An iterator of its own, whose workers never see Ctrl-C: it is their parent that ends them.

    Nor do they collect garbage of their parent's: the iterator of Paddle's loader that is done with
    waits, when it is freed, for threads that a forked process does not have.
    """
    if keeps_workers(loader):
        loader._iterator = None  # which somebody may be reading
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.freeze()
    try:
        return iter(loader)
    finally:
        gc.unfreeze()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(loader: Any, iterator: Any) -> None:
    """End the workers, also those that the loader would keep for the next epoch."""
    for name in ("_shutdown_workers", "_try_shutdown_all"):
        end = getattr(iterator, name, None)
        if end is not None:
            end()
    if getattr(loader, "_iterator", None) is iterator:
        loader._iterator = None
