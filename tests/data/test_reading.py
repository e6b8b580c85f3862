from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from expkit.core.errors import DataError
from expkit.data.reading import read


@dataclass
class Point:
    x: Any


class Gives:
    draws = False

    def __init__(self, fields):
        self.fields = fields

    def __len__(self):
        return 3

    def fetch(self, indices):
        return self.fields


def fetched(value):
    return read(Gives({"f": value}), np.arange(3))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(2), r"field 'f' has shape \(2,\) for 3 samples"),
        (np.array(1), r"field 'f' has shape \(\)"),
        ({"a": {"b": np.zeros((4, 3))}}, r"field 'f.a.b' has shape \(4, 3\)"),
        ((np.zeros(3), np.zeros(2)), r"field 'f.1' has shape \(2,\)"),
        (Point(np.zeros(2)), r"field 'f.x' has shape \(2,\)"),
        (["a", "b"], "field 'f' is a list of 2 for 3 samples; allowed: one entry for each"),
        ([], "field 'f' is a list of 0"),
        ({"t": [1, 2, 3, 4]}, "field 'f.t' is a list of 4"),
        ([np.zeros(3), np.zeros(2)], r"field 'f.1' has shape \(2,\)"),
        (np.ma.masked_array([1, 2, 3], [0, 1, 0]), "field 'f' is a masked array"),
    ],
)
def test_rows_that_are_not_as_many_as_samples_are_named_whatever_they_lie_in(value, message):
    with pytest.raises(DataError, match=message):
        fetched(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "name of the batch",
        0.5,
        np.float32(2),
        ["a", "b", "c"],
        [np.zeros(5), np.zeros(2), np.zeros(9)],
        [np.zeros(3), np.zeros((3, 2))],
        {"a": (np.zeros(3), ["x", "y", "z"], None)},
        Point(np.zeros(3)),
    ],
)
def test_what_has_a_row_for_each_sample_or_none_at_all_is_taken(value):
    assert fetched(value)["f"] is value
