"""Several training sets in one epoch: mixed, in turn, or one after the other."""

from __future__ import annotations

import math
import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, final, get_args

import numpy as np

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.concat import ConcatDataset
from expkit.data.dataset import Dataset
from expkit.data.permutation import MAX_LENGTH, Permutation, keyed_permutation
from expkit.data.sampler import Sampler, checked_flag, checked_seed

Mode = Literal["mixed", "in_turn", "sequential"]
Length = Literal["all", "least", "most"]
_KEPT_LAPS = 2  # of a set that goes on from epoch to epoch, an epoch has parts of two


@final
class Mixed(Sampler):
    """The order of an epoch of several training sets.

    Args:
        mode: ``mixed`` = samples of all sets stand in random order; ``in_turn`` = each optimizer
            step has samples of one set, and the sets take turns as long as they have whole steps
            left (by ``ratio`` where it is given), what fills no step comes at the end;
            ``sequential`` = one set after the other.
        length: ``all`` = each sample once; ``least`` = the epoch ends with the first set that is
            used up, larger ones go on in the next epoch where they stopped; ``most`` = every set
            is used up, smaller ones go round again, in another order each time.
        ratio: set -> its share of the samples, in any unit, for ``least`` and ``most``; None =
            equal shares.
        shuffle: whether the samples of a set come in random order, another one each epoch. Samples
            that are ``mixed`` always do.
        seed: of the order; None = the run's seed.

    Raises:
        ConfigError: options that do not go together.
    """

    def __init__(
        self,
        mode: Mode = "mixed",
        length: Length = "all",
        ratio: Mapping[str, float] | None = None,
        shuffle: bool = True,
        seed: int | None = None,
    ) -> None:
        problems = [
            *_one_of(get_args(Mode), "sampler.mode", mode),
            *_one_of(get_args(Length), "sampler.length", length),
            *_ratio(ratio),
        ]
        if ratio is not None and length == "all":
            message = "has no effect with sampler.length=all, where each sample comes once"
            problems.append(Problem("sampler.ratio", message, "sampler.length=most"))
        if mode == "mixed" and not shuffle:
            message = "is false, but sampler.mode=mixed puts all samples in random order"
            problems.append(Problem("sampler.shuffle", message, "sampler.mode=in_turn"))
        if problems:
            raise ConfigError(problems)
        self._mode = mode
        self._ends_with = length
        self._ratio = ratio
        self._shuffle = checked_flag("sampler.shuffle", shuffle)
        self._seed = checked_seed(seed)

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:
        """Learn how many samples of each set make up an epoch."""
        if not isinstance(dataset, ConcatDataset):
            message = (
                "is mixed, which mixes several training sets, and there is one; allowed: a "
                "data.source that returns a mapping name -> set as train"
            )
            raise ConfigError([Problem("sampler", message, "sampler=random")])
        seed = seed if self._seed is None else self._seed
        sizes = dict(zip(dataset.parts, np.diff(dataset.offsets).tolist(), strict=True))
        shares = _shares(self._ratio, list(sizes))
        counts = _counts(list(sizes.values()), shares, self._ends_with)
        _check_counts(sizes, counts)
        begins_anew = self._ends_with == "most"
        self._parts = [
            _Part(
                path=(seed, name),
                offset=int(dataset.offsets[i]),
                size=size,
                stride=-(-counts[i] // size) * size if begins_anew else counts[i],
                shuffle=self._shuffle,
                # what is mixed with other sets needs no second order for the same samples
                one_order=begins_anew and self._mode == "mixed",
            )
            for i, (name, size) in enumerate(sizes.items())
        ]
        self._arrangement: _Arrangement
        if self._mode == "in_turn":
            self._arrangement = _InTurn(counts, shares, step_size)
        else:
            self._arrangement = _OneByOne(counts, seed if self._mode == "mixed" else None)
        self._length = sum(counts)

    @property
    def length(self) -> int:
        """Samples in an epoch."""
        return self._length

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The samples at [start, stop): first whose they are, then which of each set's."""
        parts, numbers = self._arrangement.locate(epoch, start, stop)
        indices = np.empty(stop - start, dtype=np.int64)
        for part, own in enumerate(self._parts):
            places = np.flatnonzero(parts == part)
            if len(places):
                indices[places] = own.draw(epoch, numbers[places])
        return indices


@dataclass
class _Part:
    """The order of one set's samples, over all epochs.

    It is drawn from lap by lap, each lap the whole set in an order of its own.

    Attributes:
        path: the seed, and names of what is seeded.
        offset: index of its first sample.
        size: its samples.
        stride: draws from the beginning of an epoch to that of the next.
        shuffle: False = each lap has the set's own order.
        one_order: whether all laps of an epoch have the order of the first.
    """

    path: tuple[int, str]
    offset: int
    size: int
    stride: int
    shuffle: bool
    one_order: bool
    _drawn: dict[int, Permutation] = field(default_factory=dict)

    def draw(self, epoch: int, numbers: Indices) -> Indices:
        """The samples that are drawn from this set as the ``numbers``-th of an epoch."""
        first, begun = divmod(epoch * self.stride, self.size)
        laps, places = np.divmod(numbers + begun, self.size)
        if self.shuffle:
            if self.one_order:
                laps[:] = 0
            for lap in range(int(laps.min()), int(laps.max()) + 1):
                own = laps == lap
                places[own] = self._order(first + lap).at(places[own])
        return self.offset + places

    def _order(self, lap: int) -> Permutation:
        if lap not in self._drawn:
            if len(self._drawn) >= _KEPT_LAPS:
                self._drawn.clear()
            seed, name = self.path
            self._drawn[lap] = keyed_permutation(self.size, derive_seed(seed, "set", name, lap))
        return self._drawn[lap]


class _Arrangement(ABC):
    """Which set each position of an epoch belongs to."""

    @abstractmethod
    def locate(self, epoch: int, start: int, stop: int) -> tuple[Indices, Indices]:
        """Of positions [start, stop): the numbers of the sets, and which draws from them."""


class _OneByOne(_Arrangement):
    """One set after the other, or shuffled together.

    Args:
        counts: samples of each set in an epoch.
        seed: of the shuffle; None = no shuffle.
    """

    def __init__(self, counts: Sequence[int], seed: int | None) -> None:
        self._begins = np.cumsum([0, *counts], dtype=np.int64)
        self._seed = seed
        self._latest: tuple[int, Permutation] | None = None

    def locate(self, epoch: int, start: int, stop: int) -> tuple[Indices, Indices]:
        if self._seed is None:
            places = np.arange(start, stop, dtype=np.int64)
        else:
            places = self._mix(self._seed, epoch).block(start, stop)
        return _divide(places, self._begins)

    def _mix(self, seed: int, epoch: int) -> Permutation:
        if self._latest is None or self._latest[0] != epoch:
            key = derive_seed(seed, "mixed", epoch)
            self._latest = epoch, keyed_permutation(int(self._begins[-1]), key)
        return self._latest[1]


class _InTurn(_Arrangement):
    """Whole steps of each set in turn, then what fills no step; keeps 16 bytes for each step.

    Args:
        counts: samples of each set in an epoch.
        shares: how often it is each set's turn, in any unit.
        step_size: samples of a step.
    """

    def __init__(self, counts: Sequence[int], shares: Sequence[Fraction], step_size: int) -> None:
        whole = [count // step_size for count in counts]
        if not any(whole):
            message = (
                f"is in_turn, but no set has the {step_size} samples of a step; allowed: a smaller "
                "batch, or another mode"
            )
            raise ConfigError([Problem("sampler.mode", message, "sampler.mode=mixed")])
        sets = np.repeat(np.arange(len(whole), dtype=np.int64), whole)
        steps = np.concatenate([np.arange(number, dtype=np.int64) for number in whole])
        times = steps / np.array([float(share) for share in shares])[sets]
        turns = np.lexsort((sets, times))
        self._sets, self._steps = sets[turns], steps[turns]
        self._step_size = step_size
        self._whole = np.array(whole, dtype=np.int64)
        rests = [count % step_size for count in counts]
        self._rests = np.cumsum([0, *rests], dtype=np.int64)

    def locate(self, epoch: int, start: int, stop: int) -> tuple[Indices, Indices]:  # noqa: ARG002
        size, end = self._step_size, len(self._sets) * self._step_size
        positions = np.arange(start, stop, dtype=np.int64)
        steps, places = np.divmod(positions[: max(0, end - start)], size)
        rest_sets, rest = _divide(positions[max(0, end - start) :] - end, self._rests)
        sets = np.concatenate([self._sets[steps], rest_sets])
        draws = [self._steps[steps] * size + places, self._whole[rest_sets] * size + rest]
        return sets, np.concatenate(draws)


def _divide(places: Indices, begins: Indices) -> tuple[Indices, Indices]:
    """Of places in a row of stretches: the number of the stretch, and the place in it."""
    numbers = np.searchsorted(begins, places, side="right") - 1
    return numbers, places - begins[numbers]


def _shares(ratio: Mapping[str, float] | None, names: Sequence[str]) -> list[Fraction]:
    """The share of each set; a ratio of other sets is refused."""
    if ratio is None:
        return [Fraction(1)] * len(names)
    if set(ratio) != set(names):
        message = f"is of {', '.join(ratio)}; allowed: one number for each of {', '.join(names)}"
        hint = ",".join(f"{name}:1" for name in names)
        raise ConfigError([Problem("sampler.ratio", message, f"sampler.ratio={{{hint}}}")])
    return [Fraction(str(ratio[name])) for name in names]  # 0.1 is a tenth


def _counts(sizes: Sequence[int], shares: Sequence[Fraction], length: str) -> list[int]:
    """Samples of each set in an epoch."""
    if length == "all":
        return list(sizes)
    units = [size / share for size, share in zip(sizes, shares, strict=True)]
    if length == "least":
        return [math.floor(min(units) * share) for share in shares]
    return [math.ceil(max(units) * share) for share in shares]


def _check_counts(sizes: Mapping[str, int], counts: Sequence[int]) -> None:
    """Refuse a ratio that leaves a set out, or makes more samples than can be ordered."""
    if sum(counts) > MAX_LENGTH:
        message = f"makes an epoch of {sum(counts)} samples; allowed: at most {MAX_LENGTH}"
        raise ConfigError([Problem("sampler.ratio", message, "sampler.length=least")])
    for (name, size), count in zip(sizes.items(), counts, strict=True):
        if count == 0:
            message = f"leaves no sample of set {name!r} ({size} samples) in an epoch"
            raise ConfigError([Problem("sampler.ratio", message, "sampler.length=most")])


def _one_of(allowed: Sequence[str], key: str, value: Any) -> list[Problem]:
    if value in allowed:
        return []
    message = f"is {value!r}; allowed: {', '.join(allowed)}"
    return [Problem(key, message, f"{key}={allowed[0]}")]


def _ratio(ratio: Any) -> list[Problem]:
    """A problem where it is no mapping of numbers above 0."""
    if ratio is None:
        return []
    if isinstance(ratio, Mapping) and ratio and all(map(_is_share, ratio.values())):
        return []
    message = f"is {reprlib.repr(ratio)}; allowed: null, or set -> a number above 0"
    return [Problem("sampler.ratio", message, "sampler.ratio=null")]


def _is_share(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value <= sys.float_info.max
