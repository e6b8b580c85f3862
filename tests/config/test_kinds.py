import math
from typing import Annotated, Literal

import pytest

from expkit.config.kinds import (
    Bounds,
    DurationSyntax,
    PeriodSyntax,
    accepts,
    complaint,
    describe,
    seconds,
)

COUNT = Annotated[int, Bounds(ge=0)]
PERIOD = Annotated[int | str, PeriodSyntax()]
DURATION = Annotated[float | str, DurationSyntax()]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (0, COUNT),
        (None, COUNT | None),
        (3, float),
        (2.5, float),
        ("1ep", PERIOD),
        (7, PERIOD),
        ("1h30m", DURATION),
        (90, DURATION),
        ([1, 2], list[COUNT]),
        ({"a": "b"}, dict[str, str]),
        ("x", Literal["x", "y"]),
    ],
)
def test_right_values_are_accepted(value, hint):
    assert accepts(value, hint)
    assert complaint(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (-1, COUNT),
        (2.0, COUNT),
        (True, COUNT),
        (True, float),
        (1, bool),
        ("five", COUNT | None),
        ("None", str | None),
        (math.nan, float),
        (math.inf, float),
        (0, PERIOD),
        (-1, PERIOD),
        ("0ep", PERIOD),
        ("1 day", DURATION),
        (0, DURATION),
        (math.inf, DURATION),
        ([1, -1], list[COUNT]),
        ({"a": 1}, dict[str, str]),
        ("z", Literal["x", "y"]),
        ([], Literal["x", "y"]),
    ],
)
def test_wrong_values_are_refused_with_value_and_what_is_allowed(value, hint):
    assert not accepts(value, hint)
    message = complaint(value, hint)
    assert repr(value) in message
    assert describe(hint) in message


def test_none_as_text_is_told_to_be_null():
    assert "null is written null" in complaint("None", COUNT | None)


def test_allowed_values_are_told_in_words():
    assert describe(Annotated[float, Bounds(ge=0, lt=1)] | None) == (
        "a number, at least 0 and below 1, or null"
    )
    assert describe(list[bool]) == "a list, each item true or false"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("45s", 45), ("1h30m", 5400), ("1d", 86400), ("2d1h1m1s", 176461), ("", 0), ("1x", 0)],
)
def test_durations_are_seconds(text, expected):
    assert seconds(text) == expected
