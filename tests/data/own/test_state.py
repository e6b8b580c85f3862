from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import pytest

from expkit.checkpoint.tensors import decode, encode
from expkit.core.errors import DataError
from expkit.data.own.state import from_plain, to_plain


def through_a_checkpoint(state):
    """What a rank's own part of a checkpoint brings back."""
    parts = encode({"ranks": {"0000": {"data": {"source": to_plain(state, "the loader")}}}})
    files = {part.name: b"".join(bytes(chunk) for chunk in part.chunks) for part in parts}
    return from_plain(decode(files)["ranks"]["0000"]["data"]["source"])


def assert_same(found, value):
    assert type(found) is type(value)
    if isinstance(value, dict):
        assert list(found) == list(value)
        for key in value:
            assert_same(found[key], value[key])
    elif isinstance(value, (list, tuple)):
        assert len(found) == len(value)
        for one, other in zip(found, value, strict=True):
            assert_same(one, other)
    elif isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)
    else:
        assert found == value


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        [],
        (1, -2.5, None, True, "text", float("inf")),
        {"nested": [{"a": ({},), 3: "number", (1, "b"): [[]]}]},
        OrderedDict(first=1, second=[2]),
        {"bytes": b"\x00\xff", "more": bytearray(b"abc"), "none": b""},
        {"array": np.arange(6, dtype=np.int16).reshape(2, 3), "one": np.float32(0.1)},
        {"bool": np.bool_(True), "empty": np.zeros((0, 3))},
        ["list", ["looks", "like", "a", "kind"]],
        random.Random(3).getstate(),
        np.random.default_rng(3).bit_generator.state,
        np.random.RandomState(3).get_state(),
    ],
)
def test_a_state_comes_back_as_it_was(state):
    assert_same(through_a_checkpoint(state), state)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_tensors_come_back_as_tensors(framework):
    module = pytest.importorskip(framework)
    make = module.tensor if framework == "torch" else module.to_tensor
    state = {"t": make([[1, 2], [3, 4]]), "scalar": make(2.5)}
    found = through_a_checkpoint(state)
    assert type(found["t"]) is type(state["t"])
    assert found["t"].dtype == state["t"].dtype
    assert found["t"].tolist() == [[1, 2], [3, 4]]
    assert found["scalar"].tolist() == 2.5


def test_arrays_are_copies():
    array = np.zeros(3)
    plain = to_plain({"a": array}, "x")
    array[:] = 1
    assert from_plain(plain)["a"].tolist() == [0, 0, 0]


class Own:
    pass


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"a": [1, Own()]}, "the state of the loader['a'][1] is of type Own"),
        ({"names": np.array(["a"])}, "the state of the loader['names'] is of type ndarray"),
        ({"s": {1, 2}}, "the state of the loader['s'] is of type set"),
        (lambda: None, "the state of the loader is of type function"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused_by_its_place(state, place):
    with pytest.raises(DataError) as caught:
        to_plain(state, "the loader")
    assert place in str(caught.value)
    assert "allowed: dicts, lists" in str(caught.value)


def test_a_state_that_holds_itself_is_refused():
    state = {"buffer": []}
    state["buffer"].append([state])
    with pytest.raises(DataError, match="the state of the loader holds itself"):
        to_plain(state, "the loader")
