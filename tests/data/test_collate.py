from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Collate, Pad


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Point:
    x: float
    name: str


def test_nested_batches_keep_their_types_and_leave_text_and_none_alone():
    samples = [
        {
            "a": {"img": np.full(2, i, dtype=np.float32), "id": "xy"[i]},
            "m": None,
            "p": Pair(np.array(i), (i, 2.5)),
            "d": Point(float(i), "n"),
            "path": Path(str(i)),
        }
        for i in range(2)
    ]
    batch = Collate()(samples)
    assert batch["a"]["img"].tolist() == [[0, 0], [1, 1]]
    assert batch["a"]["id"] == ["x", "y"]
    assert batch["m"] is None
    assert type(batch["p"]) is Pair
    assert batch["p"].left.tolist() == [0, 1]
    assert type(batch["p"].right) is tuple
    assert batch["p"].right[1].dtype == np.float32
    assert type(batch["d"]) is Point
    assert batch["d"].x.tolist() == [0.0, 1.0]
    assert batch["d"].name == ["n", "n"]
    assert batch["path"] == [Path("0"), Path("1")]


@pytest.mark.parametrize(
    ("sample", "fields"),
    [
        ((1, 2, 3), ["x", "y", "field2"]),
        ([np.zeros(2), 1], ["x", "y"]),
        (Pair(1, 2), ["left", "right"]),
        (Point(1.0, "n"), ["x", "name"]),
        (np.zeros(2), ["x"]),
        ([1, 2], ["x"]),
        (3, ["x"]),
    ],
)
def test_fields_get_the_names_that_the_sample_gives(sample, fields):
    assert list(Collate()([sample, sample])) == fields


def test_numbers_become_arrays_of_the_types_that_models_take():
    batch = Collate()([{"i": 1, "f": 0.5, "b": True, "n": np.float64(1)}] * 3)
    types = {name: array.dtype for name, array in batch.items()}
    assert types == {"i": np.int64, "f": np.float32, "b": np.bool_, "n": np.float64}
    assert batch["i"].shape == (3,)
    assert Collate()([{"v": 1}, {"v": 0.5}])["v"].tolist() == [1.0, 0.5]


def test_lengths_that_differ_are_padded_as_configured():
    samples = [{"ids": [1, 2, 3]}, {"ids": [4]}]
    collate = Collate({"ids": Pad(value=9, multiple=4, mask="is_real")})
    batch = collate(samples)
    assert batch["ids"].tolist() == [[1, 2, 3, 9], [4, 9, 9, 9]]
    assert batch["is_real"].tolist() == [[True, True, True, False], [True, False, False, False]]
    left = Collate({"ids": {"side": "left", "mask": "is_real"}})(samples)
    assert left["ids"].tolist() == [[1, 2, 3], [0, 0, 4]]
    assert left["is_real"].tolist() == [[True, True, True], [False, False, True]]


def test_padding_reaches_nested_fields_and_further_axes():
    samples = [{"in": {"v": np.ones((n, 2), dtype=np.float32)}} for n in (1, 3)]
    batch = Collate({"in.v": Pad(value=-1)})(samples)
    assert batch["in"]["v"].shape == (2, 3, 2)
    assert batch["in"]["v"][0].tolist() == [[1, 1], [-1, -1], [-1, -1]]
    assert batch["in"]["v"].dtype == np.float32


def test_lengths_that_differ_without_padding_are_refused_with_the_remedy():
    with pytest.raises(DataError, match=r"'ids' .*\(1,\) and \(3,\).*Pad\(value=0\)"):
        Collate()([{"ids": [1, 2, 3]}, {"ids": [4]}])


def test_padding_that_reaches_no_field_is_refused():
    with pytest.raises(DataError, match=r"padding is configured for tokens, .* their fields: ids"):
        Collate({"tokens": Pad()})([{"ids": [1]}, {"ids": [2]}])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"a": 1}, {"b": 1}], r"different fields, \['a'\] and \['b'\]"),
        ([{"a": 1}, {"a": None}], "'a' is None in 1 of the 2 samples of a batch, first at place 1"),
        ([{"a": 1}, {"a": "x"}], "different types in one batch: int, str"),
        ([{"a": (1, 2)}, {"a": (1,)}], "tuples of different lengths"),
    ],
)
def test_samples_that_do_not_match_are_refused(samples, message):
    with pytest.raises(DataError, match=message):
        Collate()(samples)


def test_padding_of_other_axes_is_refused():
    with pytest.raises(DataError, match="differ in their first axis only"):
        Collate({"v": Pad()})([{"v": np.zeros((1, 2))}, {"v": np.zeros((1, 3))}])
    with pytest.raises(DataError, match="differ in their first axis only"):
        Collate({"v": Pad()})([{"v": np.array(1)}, {"v": np.array(2)}])


def test_wrong_padding_options_are_all_named():
    with pytest.raises(ConfigError, match=r"side: is 'top'; allowed: left, right\nmultiple: is 0"):
        Pad(side="top", multiple=0)


def test_padding_from_a_config_is_checked_with_the_names_of_its_keys():
    with pytest.raises(ConfigError) as caught:
        Collate({"x": {"side": "up", "multiple": 0, "value": "none"}})
    assert [problem.key for problem in caught.value.problems] == [
        "collate.pad.x.side",
        "collate.pad.x.multiple",
        "collate.pad.x.value",
    ]
    with pytest.raises(
        ConfigError, match=r"pad\.x\.sid: is no option of padding; allowed: value, s"
    ):
        Collate({"x": {"sid": "left"}})
    with pytest.raises(
        ConfigError, match=r"collate\.pad\.x: is 3; allowed: a mapping with the keys"
    ):
        Collate({"x": 3})
    with pytest.raises(ConfigError, match=r"collate\.pad: is a list; allowed: names of fields"):
        Collate(["x"])


def test_whole_columns_become_what_their_samples_would():
    samples = [
        {"i": i, "f": i / 2, "ids": list(range(i)), "text": str(i), "in": {"v": [1.0, 2.0]}}
        for i in range(1, 4)
    ]
    columns = {name: [sample[name] for sample in samples] for name in samples[0]}
    collate = Collate({"ids": Pad(value=9, mask="is_real")})
    expected, found = collate(samples), collate.columns(columns)
    assert list(found) == list(expected)
    for name in ("i", "f", "ids", "is_real"):
        assert found[name].dtype == expected[name].dtype
        assert np.array_equal(found[name], expected[name])
    assert (found["text"], found["in"]["v"].tolist()) == (["1", "2", "3"], [[1, 2]] * 3)


def test_whole_columns_of_arrays_are_taken_as_they_are_and_can_be_written():
    x, fixed = np.zeros((3, 2)), np.arange(3)
    fixed.flags.writeable = False
    batch = Collate({"n": Pad(multiple=4)}).columns(
        {"x": x, "fixed": fixed, "n": np.ones((3, 2)), "text": np.array(["a", "b", "c"])}
    )
    assert batch["x"] is x
    assert batch["fixed"].flags.writeable
    assert batch["n"].shape == (3, 4)
    assert [type(each) for each in batch["text"]] == [str] * 3
