"""Random numbers that a data set draws: a function of the sample alone, and no part of the run's.

While samples are read, Python's `random`, NumPy's global generator and those of torch and Paddle,
where these are imported, are seeded; afterwards they are as they were. So what is drawn depends on
neither the number of workers nor that of ranks, and nothing else depends on what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from expkit.core.batch import Indices
from expkit.data.generators import Generator, generators

T = TypeVar("T")

_COLLATE = 0x5DEECE66D


def sample_seeds() -> Indices:
    """Seeds of the samples that are being read, in their order; for generators of your own.

    In ``__getitem__`` there is one: ``np.random.default_rng(sample_seeds()[0])``. In ``fetch``
    there are as many as indices, so that what is drawn for a sample depends on that sample alone.

    Raises:
        RuntimeError: no sample is being read for training or evaluation.
    """
    seeds = seeds_being_read()
    if seeds is None:
        raise RuntimeError(
            "no sample is being read; allowed: in __getitem__, fetch and collate functions that a "
            "training or an evaluation calls"
        )
    return seeds


def seeds_at(key: int, places: Indices) -> Indices:
    """Seeds of 63 bits, one for each place.

    Args:
        key: of the stream, see `expkit.core.seeding.derive_seed`.
        places: positions in an epoch, or indices in a data set.

    Returns:
        The SplitMix64 sequence that starts at ``key``, at these places, without the lowest bits
        (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    words = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    words += np.uint64(key)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return (words >> np.uint64(1)).view(np.int64)


class Habits:
    """From which generators a data set draws, as far as it has been seen reading.

    Seeding all of them for each sample takes longer than reading a small one. At first all are
    seeded, then only those from which something was drawn. The others are watched: when one of them
    moves, what was read counts for nothing, and is read once more with that one seeded, too.
    """

    def __init__(self) -> None:
        self._drawn: tuple[Generator, ...] | None = None

    def read(self, fetch: Callable[[], T], seeds: Indices) -> T:
        """What ``fetch`` reads, with these seeds of its samples."""
        if self._drawn is None:
            moved: list[Generator] = []
            try:
                with _reading(seeds, generators(), moved):
                    return fetch()
            finally:
                self._drawn = tuple(moved)
        watched = [each for each in generators() if each not in self._drawn]
        before = [(each, each.state(), each.mark()) for each in watched]
        failure: Exception | None = None
        with _reading(seeds, self._drawn):
            try:
                result = fetch()
            except Exception as error:
                failure = error
        moved = []
        for each, state, mark in before:
            if each.mark() != mark:
                each.load(state)
                moved.append(each)
        if moved:
            self._drawn += tuple(moved)
            return self.read(fetch, seeds)
        if failure is not None:
            raise failure
        return result


class _Reading:
    """What is being read, with which generators.

    Attributes:
        seeds: of the samples, or of the one that is read alone.
    """

    def __init__(
        self, seeds: Indices, seeded: Sequence[Generator], moved: list[Generator] | None
    ) -> None:
        self.seeds = seeds
        self._seeded = seeded
        self._moved = moved
        self._marks: list[Any] = []

    def seed(self, seed: int) -> None:
        """Seed the generators."""
        self.look()
        for each in self._seeded:
            each.seed(seed)
        if self._moved is not None:
            self._marks = [each.mark() for each in self._seeded]

    def look(self) -> None:
        """See which of them have moved."""
        if self._moved is not None:
            for each, mark in zip(self._seeded, self._marks, strict=False):
                if each not in self._moved and each.mark() != mark:
                    self._moved.append(each)


_now: ContextVar[_Reading | None] = ContextVar("what is being read", default=None)


@contextmanager
def _reading(
    seeds: Indices, seeded: Sequence[Generator], moved: list[Generator] | None = None
) -> Iterator[None]:
    now = _Reading(seeds, seeded, moved)
    token = _now.set(now)
    states = [each.state() for each in seeded]
    try:
        now.seed(int(seeds[0]))
        yield
        now.look()
    finally:
        for each, state in zip(seeded, states, strict=True):
            each.load(state)
        _now.reset(token)


@contextmanager
def reading(seeds: Indices) -> Iterator[None]:
    """While samples with these seeds are read; afterwards all generators are as they were.

    At first the generators are those of the first sample; see `begin_sample`.
    """
    with _reading(seeds, generators()):
        yield


def seeds_being_read() -> Indices | None:
    """What `sample_seeds` gives, or None where no sample is being read."""
    now = _now.get()
    return None if now is None else now.seeds


def begin_sample(seeds: Indices, place: int) -> None:
    """From here on, one of the samples being read is read alone."""
    now = _now.get()
    if now is not None:
        now.seeds = seeds[place : place + 1]
        now.seed(int(seeds[place]))


def begin_collate(seeds: Indices) -> None:
    """From here on, samples that were read alone are put together."""
    now = _now.get()
    if now is not None:
        now.seeds = seeds
        now.seed(int(seeds[0]) ^ _COLLATE)


@contextmanager
def reading_rows(rows: Indices) -> Iterator[None]:
    """While some of the samples being read are read from one of several sets.

    Args:
        rows: their places among those being read.
    """
    now = _now.get()
    if now is None:
        yield
        return
    seeds = now.seeds
    now.seeds = seeds[rows]
    now.seed(int(now.seeds[0]))
    try:
        yield
    finally:
        now.seeds = seeds


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds all generators; afterwards they are as they were."""
    with untouched_generators():
        seed_generators(seed)
        yield


@contextmanager
def untouched_generators() -> Iterator[None]:
    """Leaves all generators as they were."""
    states = [(each, each.state()) for each in generators()]
    try:
        yield
    finally:
        for each, state in states:
            each.load(state)


def seed_generators(seed: int) -> None:
    """Seed all generators."""
    for each in generators():
        each.seed(seed)
