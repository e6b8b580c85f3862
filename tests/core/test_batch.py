from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import numpy as np

from expkit.core.batch import Batch, map_leaves

Point = namedtuple("Point", "x y")


@dataclass
class Computed:
    value: int
    double: int = field(init=False)

    def __post_init__(self):
        self.double = 2 * self.value


def test_a_batch_counts_its_samples():
    assert Batch({}, np.arange(5)).size == 5.0


def test_a_batch_counts_weights_where_there_are_some():
    weights = np.array([1, 1, 0], dtype=np.float32)
    assert Batch({}, np.arange(3), weights).size == 2.0


def test_weights_are_summed_in_float64():
    weights = np.full(2**24 + 8, 1, dtype=np.float32)
    assert Batch({}, np.zeros(len(weights), np.int64), weights).size == 2**24 + 8


def test_every_container_is_rebuilt_with_its_leaves_converted():
    value = {"a": [1, (2, Point(3, 4))], "b": OrderedDict(c=5), "d": Computed(6), "e": None}
    got = map_leaves(value, lambda leaf: leaf if leaf is None else leaf + 10)
    assert got["a"] == [11, (12, Point(13, 14))]
    assert got["b"] == {"c": 15}
    assert got["e"] is None
    assert (got["d"].value, got["d"].double) == (16, 32)


def test_a_class_is_a_leaf():
    assert map_leaves({"kind": Computed}, lambda leaf: leaf) == {"kind": Computed}
