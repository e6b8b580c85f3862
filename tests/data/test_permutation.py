from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.data import permutation as module
from expkit.data.permutation import MAX_LENGTH, keyed_permutation

BORDER = module._TABLE_MAX


def is_bijection(permutation: module.Permutation, n: int) -> bool:
    seen = np.zeros(n, dtype=bool)
    images = permutation.block(0, n)
    assert images.dtype == np.int64
    assert n == 0 or (images.min() >= 0 and images.max() < n)
    seen[images] = True
    return bool(seen.all())


def test_every_length_up_to_4096_is_a_bijection():
    # so small, permutations are drawn; the other way of computing them must hold for any length
    for n in range(4097):
        assert is_bijection(keyed_permutation(n, n), n), n
        if n > 1:
            assert is_bijection(module._Mixed(n, n), n), n


@pytest.mark.parametrize(
    "exponent",
    [
        *range(10, 18),
        *(pytest.param(exponent, marks=pytest.mark.slow) for exponent in (18, 19, 20)),
    ],
)
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_lengths_around_powers_of_two_are_bijections(exponent, offset):
    n = 2**exponent + offset
    for key in (0, 1, 2**63 - 1):
        assert is_bijection(keyed_permutation(n, key), n)
        assert is_bijection(module._Mixed(n, key), n)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(BORDER + 1, 200_000), key=st.integers(0, 2**63 - 1))
def test_any_length_and_key_is_a_bijection(n, key):
    assert is_bijection(keyed_permutation(n, key), n)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, MAX_LENGTH), key=st.integers(0, 2**63 - 1), data=st.data())
def test_a_block_is_what_its_parts_are(n, key, data):
    start = data.draw(st.integers(0, n - 1))
    stop = min(n, start + data.draw(st.integers(1, 20_000)))
    middle = data.draw(st.integers(start, stop))
    permutation = keyed_permutation(n, key)
    whole = permutation.block(start, stop)
    parts = [permutation.block(start, middle), permutation.block(middle, stop)]
    assert np.array_equal(whole, np.concatenate(parts))
    assert whole.min() >= 0
    assert whole.max() < n
    assert len(np.unique(whole)) == len(whole)


def image_by_hand(n, key, place):
    """The definition, one element at a time, in Python's integers."""
    bits = (n - 1).bit_length()
    words = np.random.Philox(key=key).random_raw(12).tolist()
    while True:
        for add, factor in zip(words[:6], words[6:], strict=True):
            place = (place + add) * (factor | 1) % 2**bits
            place ^= place >> (bits + 1) // 2
        if place < n:
            return place


@pytest.mark.parametrize("n", [BORDER + 1, 2**20, 2**32 - 5, 2**32, 2**32 + 1, 10**12, MAX_LENGTH])
def test_images_are_those_of_the_definition(n):
    places = [0, 1, n // 3, n - 2, n - 1]
    images = keyed_permutation(n, 2**63 - 5).at(np.array(places)).tolist()
    assert images == [image_by_hand(n, 2**63 - 5, place) for place in places]


def test_a_block_may_be_written_to_without_changing_the_order():
    for n in (100, 100_000):
        permutation = keyed_permutation(n, 3)
        first = permutation.block(0, 50)
        kept = first.copy()
        first[:] = -1
        assert np.array_equal(permutation.block(0, 50), kept)


@pytest.mark.parametrize("n", [100, BORDER, BORDER + 1, 10**12])
def test_scattered_places_have_the_images_that_a_block_has(n):
    permutation = keyed_permutation(n, 3)
    block = permutation.block(n - 90, n)
    places = np.array([n - 1, n - 90, n - 7, n - 7])
    assert permutation.at(places).tolist() == block[[89, 0, 83, 83]].tolist()
    assert places.tolist() == [n - 1, n - 90, n - 7, n - 7]


@pytest.mark.parametrize("n", [-1, MAX_LENGTH + 1])
def test_lengths_out_of_range_are_refused(n):
    with pytest.raises(ValueError, match=r"0 to 2\*\*62"):
        keyed_permutation(n, 0)


@pytest.mark.parametrize("n", [BORDER, BORDER + 1, 10**6, 10**9, 10**12, 2**40 + 1, MAX_LENGTH])
def test_first_index_and_seek_take_less_than_a_millisecond(n):
    times = []
    for key in range(20):
        started = time.perf_counter()
        keyed_permutation(n, key).block(n // 2, n // 2 + 1)
        times.append(time.perf_counter() - started)
    assert min(times) < 1e-3


def test_memory_does_not_grow_with_the_length():
    tracemalloc.start()
    keyed_permutation(10**12, 0).block(10**11, 10**11 + 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def _z(counts: np.ndarray, expected: float) -> float:
    """Normal score of a chi-square statistic (Wilson and Hilferty, 1931)."""
    freedom = len(counts) - 1
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(
        2 / (9 * freedom)
    )


@pytest.mark.parametrize("n", [20_000_000, 10**12, MAX_LENGTH])
def test_order_passes_chi_square_and_serial_tests(n):
    k, cells, scores = 100_000, 32, []
    for key in range(6):
        images = keyed_permutation(n, key).block(0, k)
        high = (images / n * cells).astype(np.int64)
        pairs = high[:-1] * cells + high[1:]
        for values, size in ((high, cells), (images % cells, cells), (pairs, cells**2)):
            scores.append(_z(np.bincount(values, minlength=size), len(values) / size))
    assert max(map(abs, scores)) < 4.0
    assert abs(np.mean(scores)) * math.sqrt(len(scores)) < 4.0


def test_each_order_of_four_is_equally_likely():
    orders: dict[tuple[int, ...], int] = {}
    for key in range(4800):
        order = tuple(keyed_permutation(4, key).block(0, 4).tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24
    assert abs(_z(np.array(list(orders.values())), 200)) < 4.0


@pytest.mark.parametrize(("make", "keys"), [(keyed_permutation, 12_000), (module._Mixed, 2400)])
def test_each_order_of_five_is_equally_likely(make, keys):
    orders = np.array([make(5, key).block(0, 5) for key in range(keys)])
    counts = np.unique(orders @ 10 ** np.arange(5), return_counts=True)[1]
    assert len(counts) == 120
    assert abs(_z(counts, keys / 120)) < 4.0


@pytest.mark.parametrize("n", [BORDER, 10**6, 10**12])
def test_orders_of_two_keys_are_independent(n):
    """Pairs of the images that one position has under two keys, chi-square over 16 x 16 cells."""
    cells, scores = 16, []
    for first, second in ((0, 1), (1, 2), (7, 2**63 - 1), (2**20, 2**20 + 1)):
        one, other = (keyed_permutation(n, key).block(0, BORDER) for key in (first, second))
        for shift in (0, 1):  # the same position, and the next one
            pairs = (one / n * cells).astype(int) * cells + (
                np.roll(other, shift) / n * cells
            ).astype(int)
            scores.append(_z(np.bincount(pairs, minlength=cells**2), BORDER / cells**2))
    assert max(map(abs, scores)) < 4.0


def test_a_chi_square_finds_what_is_not_independent():
    order = keyed_permutation(BORDER, 0).block(0, BORDER) * 16 // BORDER
    assert _z(np.bincount(order * 17, minlength=256), BORDER / 256) > 4.0
