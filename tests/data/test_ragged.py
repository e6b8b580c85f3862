from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.content import content_of
from expkit.core.errors import ConfigError, DataError
from expkit.core.position import data_signature
from expkit.data import ArrayDataset, Collate, Data, ItemDataset, Pad, Ragged
from expkit.data.values import lengths_by

ROWS = [[1, 2, 3], [4], [], [5, 6]]


def test_rows_are_padded_to_the_longest_of_the_batch():
    data = ArrayDataset({"x": Ragged.of(ROWS), "y": [0, 1, 2, 3]})
    assert data.fetch(np.array([3, 1]))["x"].tolist() == [[5, 6], [4, 0]]
    assert data.fetch(np.array([1, 1]))["x"].tolist() == [[4], [4]]
    assert data.fetch(np.array([2]))["x"].shape == (1, 0)
    assert data.fetch(np.array([0, 2]))["y"].tolist() == [0, 2]
    assert len(data) == 4


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.integers(-9, 9), max_size=9).map(lambda row: np.array(row, dtype=np.int64)),
        min_size=1,
        max_size=12,
    ),
    value=st.integers(-3, 3),
    side=st.sampled_from(["left", "right"]),
    multiple=st.integers(1, 4),
    data=st.data(),
)
def test_batches_are_those_of_collate(rows, value, side, multiple, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20))
    pad = Pad(value, side, multiple, "mask")
    indices = np.array(chosen, dtype=np.int64)
    expected = ItemDataset([{"x": row} for row in rows], Collate({"x": pad})).fetch(indices)
    found = ArrayDataset({"x": Ragged.of(rows, pad)}).fetch(indices)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_entries_of_a_row_may_have_axes_of_their_own():
    rows = [np.full((n, 2, 3), n, np.float32) for n in (1, 3)]
    x, is_real = Ragged.of(rows, {"value": -1, "side": "left"}).take(np.array([0, 1]))
    assert x.shape == (2, 3, 2, 3)
    assert x.dtype == np.float32
    assert x[:, :, 0, 0].tolist() == [[-1, -1, 1], [3, 3, 3]]
    assert is_real.tolist() == [[False, False, True], [True, True, True]]


def test_batches_do_not_depend_on_what_is_read_with_them():
    """Rows of several batches gathered at once would be as long as the longest of all."""
    rng = np.random.default_rng(0)
    rows = [np.full(n, n) for n in rng.integers(1, 9, 100)]
    loader = Data({"x": Ragged.of(rows)}, batch_size=4).train_loader()
    whole = [w.batches[0] for w in loader.windows(0)]
    assert [len(b.fields["x"][0]) for b in whole] == [
        max(len(rows[i]) for i in b.indices) for b in whole
    ]
    rest = [w.batches[0].fields["x"].tolist() for w in loader.windows(0, 3)]
    assert rest == [b.fields["x"].tolist() for b in whole[3:]]


def test_values_may_be_a_memory_mapped_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = ArrayDataset({"x": Ragged(mapped, [0, 3, 4, 4, 6])})
    assert data.fetch(np.array([1, 3]))["x"].tolist() == [[3, 0], [4, 5]]
    assert not data.is_in_memory
    assert ArrayDataset({"x": Ragged(np.arange(6), [0, 6])}).is_in_memory


def test_samplers_see_the_lengths():
    data = ArrayDataset({"x": Ragged.of(ROWS)})
    assert lengths_by(data, "x").tolist() == [3, 1, 0, 2]


def test_ranks_and_resumed_runs_compare_values_and_lengths():
    def content(rows):
        data = Data({"x": Ragged.of(rows, dtype=np.int64)})
        return content_of(data.train), data_signature(data.train_loader(), data)["content"]

    own = content(ROWS)
    assert content(ROWS) == own
    for other in ([[1, 2, 3], [4], [], [5, 7]], [[1, 2], [3, 4], [], [5, 6]]):
        for before, now in zip(own, content(other), strict=True):
            assert before != now


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        ([1, 2], [0, 1], r"from 0 to 1; allowed: from 0 to the 2 entries"),
        ([1, 2], [1, 2], "from 1 to 2"),
        ([1, 2, 3], [0, 2, 1, 3], "none smaller than the one before"),
        ([1, 2], [0.0, 2.0], r"offsets float64 of shape \(2,\); allowed: one integer per row"),
        ([1, 2], [], "offsets float64 of shape"),
        ("text", [0, 4], "values of str"),
    ],
)
def test_what_makes_no_ragged_column_is_refused(values, offsets, message):
    with pytest.raises(DataError, match=message):
        Ragged(values, offsets)


def test_rows_that_fit_no_ragged_column_are_refused():
    with pytest.raises(DataError, match="row 1 of a ragged column is str"):
        Ragged.of([[1], "text"])
    with pytest.raises(DataError, match="row 0 of a ragged column is int"):
        Ragged.of([1, 2])
    with pytest.raises(DataError, match=r"entries of shapes \(2,\) and \(3,\)"):
        Ragged.of([np.zeros((1, 2)), np.zeros((1, 3))])


def test_wrong_padding_and_names_are_refused():
    with pytest.raises(ConfigError, match=r"pad\.sid: is no option of padding; allowed: value, "):
        Ragged.of(ROWS, {"sid": "left"})
    with pytest.raises(DataError, match="'x' is to have the mask 'y', which is a field itself"):
        ArrayDataset({"x": Ragged.of(ROWS, {"mask": "y"}), "y": [1, 2, 3, 4]})
    with pytest.raises(DataError, match=r"differ in length \(x: 4, y: 1\)"):
        ArrayDataset({"x": Ragged.of(ROWS), "y": [1]})


def test_what_would_be_lost_or_changed_is_refused():
    with pytest.raises(DataError, match="'x' and 'z' are to have one mask, 'm'"):
        ArrayDataset({n: Ragged.of(ROWS, {"mask": "m"}) for n in ("x", "z")})
    with pytest.raises(DataError, match=r"padded with 0\.5, which its type int64 cannot hold"):
        Ragged.of(ROWS, {"value": 0.5}, dtype=np.int64)
    with pytest.raises(
        DataError, match=r"padded with -1, .*uint8.*allowed: an integer from 0 to 2"
    ):
        Ragged(np.zeros(3, np.uint8), [0, 3], Pad(-1))
    for rows in ([[1.5], [3]], [[1], [300]], [[-1], [2]], [[float("nan")], [1]]):
        with pytest.raises(DataError, match=r"a ragged column holds .*, which uint8 cannot hold"):
            Ragged.of(rows, dtype=np.uint8)
    with pytest.raises(DataError, match=r"holds 1e.300, which float32 cannot hold"):
        Ragged.of([np.array([1e300])], dtype=np.float32)
    with pytest.raises(
        DataError, match="row 1 of a ragged column holds the integer 92233720368547"
    ):
        Ragged.of([[1], [2**63, 1]])
    assert Ragged.of([[1.0], [255]], dtype=np.uint8).values.tolist() == [1, 255]
    assert Ragged.of([[0.1]], dtype=np.float16).values.dtype == np.float16


def test_reading_makes_no_loop_over_rows():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 60, 200_000)
    column = Ragged(np.arange(lengths.sum()), np.cumsum([0, *lengths]))
    indices = rng.permutation(200_000)
    rows, is_real = column.take(indices)
    assert is_real.sum() == lengths.sum()
    assert np.array_equal(np.sort(rows[is_real]), column.values)
