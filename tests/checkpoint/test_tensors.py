"""A state tree comes back from its files to the bit, or is refused by name."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from expkit.checkpoint.manifest import DamageError
from expkit.checkpoint.tensors import decode, encode
from expkit.core.errors import CheckpointError


def files(state):
    return {part.name: b"".join(part.chunks) for part in encode(state)}


def through_files(state):
    return decode(files(state))


DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("top", ["model", "optimizer", "rng", "callbacks"])
def test_arrays_of_all_types_and_shapes_come_back_exactly(dtype, top, assert_same):
    random = np.random.default_rng(0)
    square = random.integers(0, 2**7, (6, 6)).astype(dtype)
    state = {
        top: {
            "square": square,
            "scalar": np.array(square[0, 0]),
            "empty": np.zeros((0, 3), dtype),
            "nothing": {},
        }
    }
    assert_same(through_files(state), state)


def test_arrays_that_are_not_contiguous_come_back_by_value(assert_same):
    square = np.arange(36, dtype=np.float32).reshape(6, 6)
    state = {"model": {"columns": square[:, ::2], "turned": square.T, "back": square[::-1]}}
    wanted = {"model": {name: value.copy("C") for name, value in state["model"].items()}}
    assert_same(through_files(state), wanted)


def test_big_endian_arrays_come_back_by_value():
    got = through_files({"model": {"w": np.array([1.5, -2.0], ">f4")}})["model"]["w"]
    assert got.dtype == np.float32
    assert got.tolist() == [1.5, -2.0]


def test_special_values_keep_their_bits(assert_same):
    payload = np.array([0x7FC00001, 0xFFC12345, 0x80000000], np.uint32).view(np.float32)
    leaves = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 0.1, 2**128 + 1, True, None]
    state = {"model": {"w": payload}, "trainer": {"leaves": leaves, "text": "\ud800 \0 ü 🙂"}}
    assert_same(through_files(state), state)


KEYS = ["a/b", "a", "a~b", "~1", "~0", "~2", "", "/", "__metadata__", "ключ", "\u2028", "🙂", "0"]


@pytest.mark.parametrize("top", ["model", "rng", "callbacks"])
def test_any_text_is_a_key(top, assert_same):
    flat = {key: np.array([index]) for index, key in enumerate(KEYS)}
    nested = {key: {"b": np.array([index]), "": {"": 1}} for index, key in enumerate(KEYS)}
    for branch in (flat, nested):
        assert_same(through_files({top: branch}), {top: branch})


def test_keys_of_the_top_may_be_anything_too(assert_same):
    state = {"model/a": np.array([1]), "model": {"a": np.array([2])}, "": np.array(3), "x": None}
    assert_same(through_files(state), state)
    assert_same(through_files({"model": np.array([1])}), {"model": np.array([1])})


def test_arrays_inside_lists_come_back_in_their_place(assert_same):
    state = {"schedules": [{"w": np.array([1.0])}, [np.array([2], np.int8), "text"], []]}
    assert_same(through_files(state), state)


arrays = st.builds(
    lambda dtype, values: np.array(values).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 100), max_size=4),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | arrays
keys = st.text(st.characters(codec="utf-8"), max_size=3)
trees = st.recursive(
    leaves,
    lambda child: st.lists(child, max_size=3) | st.dictionaries(keys, child, max_size=3),
    max_leaves=12,
)
tops = st.dictionaries(keys | st.sampled_from(["model", "optimizer", "rng", "trainer"]), trees)


@given(tops)
@settings(deadline=None, max_examples=60)
def test_any_tree_comes_back(state):
    def plain(value):
        if isinstance(value, np.ndarray):
            return ("array", str(value.dtype), value.shape, value.tobytes())
        if isinstance(value, dict):
            return {key: plain(child) for key, child in value.items()}
        return [plain(child) for child in value] if isinstance(value, list) else value

    assert plain(through_files(state)) == plain(state)


def test_loaded_arrays_can_be_written_to():
    state = through_files({"model": {"w": np.zeros(2)}, "rng": {"x": np.zeros(2)}})
    state["model"]["w"] += 1
    state["rng"]["x"] += 1


def test_tuples_become_lists_and_numpy_scalars_numbers(assert_same):
    state = {"trainer": {"betas": (0.9, (1, 2)), "loss": np.float32(0.5), "n": [np.int64(3)]}}
    wanted = {"trainer": {"betas": [0.9, [1, 2]], "loss": 0.5, "n": [3]}}
    assert_same(through_files(state), wanted)


def test_weights_are_a_plain_safetensors_file_by_parameter_path(tree):
    weights = load(files(tree(1))["model.safetensors"])
    assert sorted(weights) == ["0.bias", "0.weight"]
    assert np.array_equal(weights["0.weight"], tree(1)["model"]["0.weight"])


def test_arrays_lie_aligned_in_their_file():
    model = {"a": np.ones(3, np.int8), "b": np.ones(3), "c": np.ones(3, np.float16)}
    content = files({"model": model})["model.safetensors"]
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    for name, entry in json.loads(content[8 : 8 + length]).items():
        assert entry["data_offsets"][0] % model[name].itemsize == 0


def test_large_arrays_are_not_copied():
    array = np.zeros(1000)
    (part,) = (part for part in encode({"model": {"w": array}}) if part.name[0] == "m")
    assert np.shares_memory(np.frombuffer(part.chunks[1], np.uint8), array)


def test_parts_are_split_by_what_they_are_for(tree):
    assert sorted(files(tree(1))) == [
        "arrays.safetensors",
        "model.safetensors",
        "optimizer.safetensors",
        "rank-0000.json",
        "state.json",
    ]


def test_what_belongs_to_a_rank_has_a_file_of_its_own():
    ranks = {f"{rank:04d}": {"rng": {"x": np.arange(rank)}} for rank in range(12)}
    state = {"model": {"w": np.ones(2)}, "ranks": ranks}
    assert [name for name in files(state) if "rank" in name] == [
        f"rank-{rank:04d}.json" for rank in range(12)
    ]
    back = through_files(state)
    assert list(back["ranks"]) == list(ranks)
    assert back["ranks"]["0011"]["rng"]["x"].tolist() == list(range(11))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({1}, "type set"),
        (b"x", "type bytes"),
        (np.array([{}]), "array of object"),
        (np.array(["x"]), "array of <U1"),
        (np.zeros(2, np.complex128), "array of complex128"),
        (np.longdouble(1), "type longdouble"),
        ({3: 1}, "key 3 of type int"),
        ([[object()]], "type object"),
        ({"\ud800": np.ones(1)}, "no valid Unicode"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_path(value, what):
    with pytest.raises(CheckpointError, match=what) as caught:
        encode({"callbacks": {"mine": value}})
    assert "state['callbacks']['mine']" in str(caught.value)


def test_types_that_numpy_alone_does_not_know_come_back(assert_same):
    types = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    state = {"model": {str(kind): np.array([1.5, -2], kind) for kind in types}}
    assert_same(through_files(state), state)


@pytest.mark.parametrize(
    "damage",
    [
        {"state.json": b"[]"},
        {"state.json": b"{"},
        {"state.json": b"\xff"},
        {"state.json": b"[" * 100_000},
        {"state.json": b"{}"},
        {"state.json": b'{"model":{"w":1}}'},
        {"model.safetensors": b""},
        {"model.safetensors": (10**12).to_bytes(8, "little") + b"{}"},
        {"rank-0000.json": b"{}"},
        {"rank-0000.json": b'{"tree":{"rng":null},"arrays":{"rng":{"dtype":"U8","base64":"?"}}}'},
    ],
)
def test_files_that_hold_no_tree_are_damage(damage):
    content = files({"model": {"w": np.ones(2)}})
    with pytest.raises(DamageError, match="no state tree"):
        decode(content | damage)


def test_a_number_with_too_many_digits_is_refused():
    with pytest.raises(CheckpointError, match=r"state\.json cannot hold the state"):
        encode({"n": 10**5000})


def test_a_rank_s_file_of_another_shape_is_damage():
    parts = {"state.json": b"{}", "rank-0000.json": b'{"tree": {}, "arrays": []}'}
    with pytest.raises(DamageError, match="holds no state tree"):
        decode(parts)
