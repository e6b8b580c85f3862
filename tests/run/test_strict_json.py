from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from expkit.run.strict_json import encode_document, encode_line


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def strict(data):
    return json.loads(data, parse_constant=refuse)


@pytest.mark.parametrize("encode", [encode_line, encode_document])
def test_numbers_that_are_not_finite_are_strings_that_float_reads(encode):
    read = strict(encode({"a": math.nan, "b": [math.inf, -math.inf], "c": 1.5}))
    assert read == {"a": "NaN", "b": ["Infinity", "-Infinity"], "c": 1.5}
    assert math.isnan(float(read["a"]))
    assert [float(value) for value in read["b"]] == [math.inf, -math.inf]


@pytest.mark.parametrize("encode", [encode_line, encode_document])
def test_numpy_paths_and_tuples_have_a_json_form(encode):
    value = {
        "scalar": np.float32(0.5),
        "int": np.int64(2**53 + 1),
        "array": np.arange(3),
        "nan": np.float64("nan"),
        "path": Path("a/b"),
        "tuple": (1, None, True),
        3: "key",
    }
    assert strict(encode(value)) == {
        "scalar": 0.5,
        "int": 2**53 + 1,
        "array": [0, 1, 2],
        "nan": "NaN",
        "path": "a/b",
        "tuple": [1, None, True],
        "3": "key",
    }


@pytest.mark.parametrize("text", ["一行", "\x1b[31m", "a\nb", "\ud800", "\u2028"])
def test_any_text_survives_on_one_line(text):
    data = encode_line({"text": text})
    assert data.count(b"\n") == 1
    assert b"\x1b" not in data
    assert strict(data)["text"] == text


def test_floats_are_exact():
    values = [0.1, 1e-310, 1.7976931348623157e308, 2 / 3]
    assert strict(encode_line(values)) == values
