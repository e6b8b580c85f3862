from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from expkit.core.errors import PredictionError
from expkit.core.identity import identities
from expkit.run.strict_json import encode_line

DAY = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1700000001.5, 7], [1700000001.5, 7]),
        ([5, 2**63 + 5], [5, 2**63 + 5]),
        (np.array([2**64 - 1], np.uint64), [2**64 - 1]),
        (np.float32([0.1]), [0.1]),
        (np.array([1700000001.5]), [1700000001.5]),
        (np.array(["2026-01-02T03:04:05.123456789"], "M8[ns]"), ["2026-01-02T03:04:05.123456789"]),
        ([np.datetime64("2026-01-02"), np.datetime64("NaT")], ["2026-01-02", "NaT"]),
        ([DAY, DAY.date()], ["2026-01-02T03:04:05", "2026-01-02"]),
        ([b"a", "é".encode()], ["a", "é"]),
        (np.array([b"ab"]), ["ab"]),
        ((1, "b"), [1, "b"]),
    ],
)
def test_identities_lose_nothing(values, expected):
    found = identities(values, len(expected))
    assert found == expected
    assert json.loads(encode_line(found)) == expected


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([("a", 1), ("b", 2)], r"\('a', 1\), of type tuple, at place 0"),
        ([{"n": 1}, {"n": 2}], r"{'n': 1}, of type dict"),
        ({"a": 1, "b": 2}, ".*of type dict"),
        ((np.array([1, 2]), np.array([3, 4])), ".*of type ndarray"),
        (np.zeros((2, 1)), r"\[0.0\], of type list"),
        (["a", None], "None, of type NoneType, at place 1"),
        ([b"\xff", b"a"], r"b'\\xff', of type bytes"),
        ("ab", "'ab', of type str"),
        (3, "3, of type int"),
    ],
)
def test_what_names_no_sample_is_refused(values, shown):
    with pytest.raises(PredictionError, match=rf"'id' is {shown}.*allowed: one number or text"):
        identities(values, 2)
