from __future__ import annotations

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import ArrayDataset, Collate, Dataset, ItemDataset, as_dataset
from expkit.data.table import TableDataset

INDICES = np.array([2, 0], dtype=np.int64)


class Squares:
    """Samples one by one; counts its reads."""

    def __init__(self, n, broken=()):
        self.n, self.broken, self.reads = n, broken, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.reads.append(i)
        if i in self.broken:
            raise ValueError("no such picture")
        return np.full(3, i, dtype=np.float32), i * i


def test_array_data_set_fetches_copies_of_rows_in_the_order_asked_for():
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    data = ArrayDataset({"x": x, "y": [0, 1, 2, 3]})
    fields = data.fetch(INDICES)
    assert fields["x"].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert fields["y"].tolist() == [2, 0]
    fields["x"][:] = -1
    assert x.min() == 0
    assert len(data) == 4
    assert data.sample_bytes == 3 * 4 + 8


def test_array_data_set_keeps_text_as_a_list():
    data = ArrayDataset({"text": ["a", "bb", "ccc"], "ids": [[1], [2, 3], []]})
    assert data.fetch(INDICES) == {"text": ["ccc", "a"], "ids": [[], [1]]}


def test_python_floats_become_float32_and_arrays_keep_their_type():
    data = ArrayDataset({"a": [0.5, 1.5], "b": np.array([0.5, 1.5]), "c": [True, False]})
    types = {name: array.dtype for name, array in data.arrays.items()}
    assert types == {"a": np.float32, "b": np.float64, "c": np.bool_}


def test_array_data_set_reads_memory_mapped_files(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = ArrayDataset({"x": mapped}).fetch(INDICES)["x"]
    assert type(rows) is np.ndarray
    assert rows.flags.writeable
    assert rows.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3), "y": np.zeros(2)}, r"differ in length \(x: 3, y: 2\)"),
        ({}, "has no field"),
        ({"x": np.float32(1)}, "'x' is one number"),
        ({"x": object()}, "'x' is object; allowed: an array, tensor or list"),
    ],
)
def test_arrays_that_make_no_data_set_are_refused(arrays, message):
    with pytest.raises(DataError, match=message):
        ArrayDataset(arrays)


def test_item_data_set_names_the_parts_of_tuples():
    fields = as_dataset(Squares(4)).fetch(INDICES)
    assert fields["x"].tolist() == [[2, 2, 2], [0, 0, 0]]
    assert fields["y"].tolist() == [4, 0]
    assert fields["y"].dtype == np.int64


def test_item_data_set_reads_nothing_but_what_is_asked_for():
    source = Squares(100)
    as_dataset(source).fetch(INDICES)
    assert source.reads == [2, 0]


def test_item_that_raises_is_named_and_the_cause_is_kept():
    with pytest.raises(
        DataError, match="sample 2 cannot be read: ValueError: no such picture"
    ) as e:
        as_dataset(Squares(4, broken=[2])).fetch(INDICES)
    assert isinstance(e.value.__cause__, ValueError)


def test_samples_that_do_not_fit_together_are_named():
    data = as_dataset([np.zeros(2), np.zeros(3), np.zeros(3)])
    with pytest.raises(DataError, match=r"samples \[2, 0\] cannot be collated.*different shapes"):
        data.fetch(INDICES)


def test_objects_that_give_many_items_at_once_are_asked_once():
    class Many(Squares):
        def __getitems__(self, indices):
            self.reads.append(tuple(indices))
            return [(i, i + 1) for i in indices]

    source = Many(4)
    assert as_dataset(source).fetch(INDICES)["y"].tolist() == [3, 1]
    assert source.reads == [(2, 0)]


def test_collate_of_the_users_own_makes_the_batch():
    data = as_dataset(Squares(4), collate=lambda items: {"n": np.array([y for _, y in items])})
    assert data.fetch(INDICES)["n"].tolist() == [4, 0]


def test_collate_that_nothing_calls_is_refused():
    with pytest.raises(
        ConfigError, match=r"data\.collate: has no effect: dict gives whole batches"
    ):
        as_dataset({"x": np.zeros(3)}, collate=Collate())


def test_data_sets_are_made_from_what_users_have():
    assert isinstance(as_dataset({"x": np.zeros(3)}), ArrayDataset)
    assert list(as_dataset((np.zeros(3), np.ones(3), np.ones(3))).fetch(INDICES)) == [
        "x",
        "y",
        "field2",
    ]
    assert isinstance(as_dataset([{"x": 1}]), ItemDataset)
    own = ArrayDataset({"x": [1]})
    assert as_dataset(own) is own
    assert isinstance(own, Dataset)


@pytest.mark.parametrize("source", [iter([1]), (i for i in range(3)), "text", 5, {1, 2}])
def test_what_has_no_length_and_index_is_refused(source):
    with pytest.raises(DataError, match=r"is no data set: .*__len__.*__getitem__"):
        as_dataset(source)


def test_a_loader_in_place_of_a_data_set_is_refused():
    class Loader:
        dataset, batch_sampler = Squares(3), ()

    with pytest.raises(DataError, match=r"Loader is a loader; allowed: .*Squares"):
        as_dataset(Loader())


def test_torch_data_sets_and_tensors_are_read():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(3, 2).requires_grad_()
    items = as_dataset(torch.utils.data.TensorDataset(x, torch.tensor([7, 8, 9])))
    subset = as_dataset(torch.utils.data.Subset(items.items, [2, 1, 0]))
    arrays = as_dataset({"x": x, "y": torch.tensor([7, 8, 9])})
    for data in (items, arrays):
        fields = data.fetch(INDICES)
        assert type(fields["x"]) is np.ndarray
        assert fields["x"].tolist() == [[4, 5], [0, 1]]
        assert fields["y"].tolist() == [9, 7]
    assert subset.fetch(INDICES)["y"].tolist() == [7, 9]
    with pytest.raises(DataError, match="DataLoader is a loader"):
        as_dataset(torch.utils.data.DataLoader(items.items))


def test_paddle_data_sets_and_tensors_are_read():
    paddle = pytest.importorskip("paddle")

    class Own(paddle.io.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return paddle.full([2], i, dtype="float32"), i

    fields = as_dataset(Own()).fetch(INDICES)
    assert fields["x"].tolist() == [[2, 2], [0, 0]]
    assert fields["y"].tolist() == [2, 0]
    column = as_dataset({"x": paddle.to_tensor([5, 6, 7])}).fetch(INDICES)["x"]
    assert column.tolist() == [7, 5]


def test_what_only_passes_many_indices_on_is_read_one_by_one():
    """So that each sample has random numbers of its own."""

    class Wrapped:
        def __init__(self, dataset):
            self.dataset, self.indices = dataset, [3, 2, 1, 0]

        def __len__(self):
            return 4

        def __getitem__(self, i):
            return self.dataset[self.indices[i]]

        def __getitems__(self, indices):
            return [self.dataset[self.indices[i]] for i in indices]

    class Many(Squares):
        def __getitems__(self, indices):
            self.reads.append(tuple(indices))
            return [self[i] for i in indices]

    one_by_one, many = Squares(4), Many(4)
    assert as_dataset(Wrapped(one_by_one)).fetch(INDICES)["y"].tolist() == [1, 9]
    assert as_dataset(many).fetch(INDICES)["y"].tolist() == [4, 0]
    assert one_by_one.reads == [1, 3]
    assert many.reads[0] == (2, 0)


def test_tables_are_read_by_column():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {
            "x": [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]],
            "y": [0, 1, 2],
            "text": ["a", "b", "c"],
            "ids": [[1], [2, 3], [4, 5, 6]],
            "words": [["a"], ["b", "c"], []],
            "in": [{"n": 1, "s": "q"}] * 3,
            "none": [None] * 3,
        }
    )
    data = as_dataset(table, Collate({"ids": {"value": -1, "mask": "is_real"}}))
    assert type(data) is TableDataset
    assert len(data) == 3
    fields = data.fetch(INDICES)
    assert (fields["x"].dtype, fields["x"].tolist()) == (np.float32, [[2.5, 3], [0.5, 1]])
    assert (fields["y"].dtype, fields["y"].tolist()) == (np.int64, [2, 0])
    assert fields["text"] == ["c", "a"]
    assert fields["ids"].tolist() == [[4, 5, 6], [1, -1, -1]]
    assert fields["is_real"].tolist() == [[True] * 3, [True, False, False]]
    assert fields["words"] == [[], ["a"]]
    assert (fields["in"]["n"].tolist(), fields["in"]["s"]) == ([1, 1], ["q", "q"])
    assert fields["none"] is None
    fields["y"][:] = 7
    assert data.fetch(INDICES)["y"].tolist() == [2, 0]
    with pytest.raises(DataError, match="'ids' has samples of different shapes"):
        as_dataset(table).fetch(INDICES)
    with pytest.raises(DataError, match=r"samples \[7\] cannot be read: IndexError"):
        data.fetch(np.array([7]))


def test_tables_keep_a_format_of_their_own_and_take_a_collate_of_the_users():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0]})
    twice = table.with_transform(lambda rows: {"x": [2 * x for x in rows["x"]]})
    assert as_dataset(twice).fetch(INDICES)["x"].tolist() == [6, 2]
    assert as_dataset(twice).draws
    assert not as_dataset(table).draws
    own = as_dataset(table, lambda rows: {"sum": np.array([row["x"] + 1 for row in rows])})
    assert own.fetch(INDICES)["sum"].tolist() == [4, 2]


def test_identities_in_tables_are_not_rounded():
    datasets = pytest.importorskip("datasets")
    ids = [1700000001.5, 1700000002.5, 1700000003.5]
    data = as_dataset(datasets.Dataset.from_dict({"x": [0.1, 0.2, 0.3], "id": ids}))
    fields = data.fetch(INDICES)
    assert fields["id"] == [ids[2], ids[0]]
    assert fields["x"].dtype == np.float32


def test_integers_of_a_list_that_int64_cannot_hold_are_refused_but_as_identities():
    with pytest.raises(DataError, match="field 'x' holds the integer 9223372036854775808"):
        ArrayDataset({"x": [2**63, 1]})
    assert ArrayDataset({"id": [2**63, 1, 5]}).fetch(INDICES)["id"] == [5, 2**63]
    assert ArrayDataset({"id": [7, 8, 9]}).fetch(INDICES)["id"].dtype == np.int64
