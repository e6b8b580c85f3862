"""Keyed pseudo-random permutations whose elements are computed where they are asked for.

The order belonging to (n, key) is part of the contract: it depends on integer arithmetic and on
NumPy's Philox bit stream, which NumPy promises to keep, and on none of NumPy's shuffling
algorithms, which it does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices

MAX_LENGTH = 2**62
_TABLE_MAX = 2**13  # up to here drawing the whole order is as fast as seeking in it
_ROUNDS = 6
_BLOCK = 32768  # elements mixed at once: what is in hand stays in the second-level cache


class Permutation(ABC):
    """A bijection of the integers in [0, n)."""

    @abstractmethod
    def block(self, start: int, stop: int) -> Indices:
        """The images of start, start + 1, ..., stop - 1."""

    @abstractmethod
    def at(self, places: Indices) -> Indices:
        """The images of these integers, in their order."""


def keyed_permutation(n: int, key: int) -> Permutation:
    """The permutation of [0, n) that belongs to a key.

    Args:
        n: how many, 0 to 2**62.
        key: 0 or greater, below 2**64; other keys give other orders.
    """
    if not 0 <= n <= MAX_LENGTH:
        raise ValueError(f"n is {n}; allowed: 0 to 2**62")
    return _Drawn(n, key) if n <= _TABLE_MAX else _Mixed(n, key)


class _Drawn(Permutation):
    """Random words, sorted with the position in their low bits."""

    def __init__(self, n: int, key: int) -> None:
        words = np.random.Philox(key=key).random_raw(n)
        low = np.uint64(_TABLE_MAX - 1)
        words &= ~low
        words |= np.arange(n, dtype=np.uint64)
        words.sort()
        words &= low
        self._order = words.view(np.int64)

    def block(self, start: int, stop: int) -> Indices:
        return self._order[start:stop].copy()

    def at(self, places: Indices) -> Indices:
        return self._order[places]


class _Mixed(Permutation):
    """Mixing rounds on the next power of two; what falls outside [0, n) is mixed again.

    A round adds a key, multiplies by an odd key and folds the upper half onto the lower; each of
    the three is a bijection of the b-bit integers. 2**b < 2n, so an element is mixed less than
    twice on average. Cycle walking: J. Black and P. Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002.
    """

    def __init__(self, n: int, key: int) -> None:
        bits = (n - 1).bit_length()
        words = np.random.Philox(key=key).random_raw(2 * _ROUNDS)
        # only the lowest bits of sums and products are kept, and those are right at any width
        self._type: type[Any] = np.uint32 if bits <= 32 else np.uint64
        words[_ROUNDS:] |= np.uint64(1)
        adds, factors = words.astype(self._type).reshape(2, _ROUNDS)
        self._rounds = list(zip(adds, factors, strict=True))
        self._n = self._type(n) if n < 2**bits else None  # else nothing falls outside
        self._mask = self._type(2**bits - 1)
        self._shift = self._type((bits + 1) // 2)

    def block(self, start: int, stop: int) -> Indices:
        return self.at(np.arange(start, stop, dtype=np.int64))

    def at(self, places: Indices) -> Indices:
        images = np.empty(len(places), dtype=np.int64)
        for begin in range(0, len(places), _BLOCK):
            values = places[begin : begin + _BLOCK].astype(self._type)
            self._mix_into_range(values)
            images[begin : begin + _BLOCK] = values
        return images

    def _mix_into_range(self, values: NDArray[Any]) -> None:
        self._mix(values)
        if self._n is None:
            return
        outside = np.flatnonzero(values >= self._n)
        while len(outside):
            again = values[outside]
            self._mix(again)
            values[outside] = again
            outside = outside[again >= self._n]

    def _mix(self, values: NDArray[Any]) -> None:
        for add, multiply in self._rounds:
            values += add
            values *= multiply
            values &= self._mask
            values ^= values >> self._shift
