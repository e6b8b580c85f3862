from __future__ import annotations

from dataclasses import dataclass, field
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


# -- what would be lost or changed ---------------------------------------------------------------


def test_masks_have_names_of_their_own():
    with pytest.raises(ConfigError, match=r"pad\.b\.mask: is 'm', as that of a; allowed: a name"):
        Collate({"a": {"mask": "m"}, "b": {"mask": "m"}})
    with pytest.raises(ConfigError, match=r"pad\.in\.b\.mask: is 'm', as that of in\.a"):
        Collate({"in.a": {"mask": "m"}, "in.b": {"mask": "m"}})
    with pytest.raises(DataError, match="'x' is to have the mask 'y', which is a field itself"):
        Collate({"x": Pad(mask="y")})([{"x": [1], "y": 0}, {"x": [1, 2], "y": 1}])
    samples = [{"in": {"a": [1]}, "a": [1]}, {"in": {"a": [1, 2]}, "a": [1, 2]}]
    both = Collate({"in.a": Pad(mask="m"), "a": Pad(mask="m")})(samples)
    assert both["m"].tolist() == both["in"]["m"].tolist() == [[True, False], [True, True]]


def test_a_mask_that_has_no_place_is_refused():
    with pytest.raises(DataError, match=r"'p\.0' .* tuple or dataclass.*p\.0\.mask=null"):
        Collate({"p.0": Pad(mask="m")})([{"p": Pair([1], 2)}, {"p": Pair([1, 2], 3)}])
    with pytest.raises(DataError, match="configured for t, but the samples have no such sequences"):
        Collate({"t": Pad(mask="m")})([{"t": "a"}, {"t": "ab"}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": 3}, "mask: is 3; allowed: the name of a field to add, or null"),
        ({"mask": True}, "mask: is True"),
        ({"mask": ""}, "mask: is ''"),
        ({"multiple": True}, "multiple: is True; allowed: an integer of at least 1"),
    ],
)
def test_padding_that_means_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Pad(**options)


@pytest.mark.parametrize(
    ("value", "dtype", "allowed"),
    [
        (0.5, "int64", "an integer from -9223372036854775808 to"),
        (float("nan"), "int64", "an integer"),
        (float("inf"), "int32", "an integer"),
        (-1, "uint8", "an integer from 0 to 255"),
        (300, "uint8", "an integer from 0 to 255"),
        (-1, "bool", "0 or 1"),
        (1e300, "float32", "a number up to 3.4e\\+38"),
        (10**400, "float64", "a number up to 1.8e\\+308"),
        (1e5, "float16", "a number up to 6.55e\\+04"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused(value, dtype, allowed):
    samples = [{"x": np.ones(n, dtype)} for n in (1, 2)]
    with pytest.raises(DataError, match=f"'x' is padded with .*type {dtype} .*allowed: {allowed}"):
        Collate({"x": Pad(value)})(samples)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.0, "int64"), (255, "uint8"), (True, "bool"), (0.1, "float32"), (float("-inf"), "float32")],
)
def test_a_value_that_the_type_can_hold_is_taken(value, dtype):
    batch = Collate({"x": Pad(value)})([{"x": np.ones(n, dtype)} for n in (1, 2)])
    assert batch["x"].dtype == dtype
    assert batch["x"][0, 1] == np.array(value, dtype)


@pytest.mark.parametrize(
    "values", [(2**70, 1), (2**63, 1), (2**63, 2**63), (-(2**64), 0), (1, [2**63])]
)
def test_integers_that_int64_cannot_hold_are_refused(values):
    with pytest.raises(DataError, match=r"'x' holds the integer -?\d+; allowed: -2\*\*63 to"):
        Collate()([{"x": value} for value in values])


def test_integers_within_lists_are_looked_at_too_and_long_ones_are_not_shown():
    with pytest.raises(DataError, match="'x' holds the integer 9223372036854775808"):
        Collate()([{"x": [2**63, 1]}, {"x": [1, 2]}])
    with pytest.raises(DataError, match="'x' holds the integer of 20001 bits"):
        Collate()([{"x": 2**20000}])
    assert Collate()([{"x": 2**63 - 1}, {"x": -(2**63)}])["x"].tolist() == [2**63 - 1, -(2**63)]
    assert Collate()([{"x": 1e300 / 1e290}, {"x": 1e30}])["x"].dtype == np.float32


def test_identities_are_kept_as_they_are_given():
    def ids(*values):
        return Collate()([{"id": value} for value in values])["id"]

    assert ids(1700000001.5, 2.5) == [1700000001.5, 2.5]
    assert ids(5, 2**63 + 1) == [5, 2**63 + 1]
    assert ids(np.float64(0.1), 2**70) == [0.1, 2**70]
    assert ids(5, 6).dtype == np.int64
    assert ids("a", "b") == ["a", "b"]
    day = np.datetime64("2026-01-02T03:04:05.123456789")
    assert ids(day, day) == [day, day]
    assert Collate().columns({"id": np.array([day])})["id"] == [day]


def test_masked_samples_are_refused_where_something_is_masked():
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(DataError, match=r"'x' is a masked array.*allowed: array\.filled\(value\)"):
        Collate()([{"x": masked}, {"x": masked}])
    assert Collate()([{"x": np.ma.masked_array([1.0])}])["x"].tolist() == [[1.0]]


def test_tensors_that_numpy_does_not_have_are_named_with_the_remedy(framework):
    if framework == "torch":
        torch = pytest.importorskip("torch")
        wrong = [torch.zeros(2, dtype=torch.bfloat16), torch.eye(2).to_sparse()]
    elif framework == "paddle":
        paddle = pytest.importorskip("paddle")
        wrong = [paddle.zeros([2], "bfloat16")]
    else:
        return
    for each in wrong:
        with pytest.raises(
            DataError, match=r"'x' is a tensor of type .*bfloat16 to float32, spars"
        ):
            Collate()([{"x": each}, {"x": each}])


def test_no_sample_makes_no_batch():
    with pytest.raises(DataError, match="there is no sample to make a batch of"):
        Collate()([])


def test_fields_that_a_dataclass_makes_itself_are_made_of_the_batch():
    @dataclass
    class Sized:
        x: Any
        shape: Any = field(init=False)

        def __post_init__(self):
            self.shape = np.shape(self.x)

    batch = Collate()([{"s": Sized(np.zeros(3))}, {"s": Sized(np.ones(3))}])
    assert batch["s"].x.shape == batch["s"].shape == (2, 3)
