"""Predictions on two ranks are those of one, byte for byte."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

SIZES = [1, 2, 3, 5, 33, 64]


def compared(root):
    """The files of all ranks, which are those that each rank has made alone; their lines."""
    names = sorted(path.name for path in root.glob("*.jsonl"))
    together = {name: (root / name).read_bytes() for name in names}
    for rank in range(2):
        alone = root / f"alone-{rank}"
        assert {path.name: path.read_bytes() for path in alone.iterdir()} == together
    assert sorted(path.name for path in root.iterdir()) == ["alone-0", "alone-1", *names]
    return {
        name: [json.loads(line) for line in text.splitlines()] for name, text in together.items()
    }


@pytest.mark.parametrize("batch_size", [1, 3, 16, 256])
def test_each_sample_is_predicted_once_and_in_order(two, tmp_path, batch_size):
    counts = {f"predictions-n{n}.jsonl": n for n in SIZES}
    for alone in (False, True):
        options = {"sizes": SIZES, "batch_size": batch_size, "alone": alone}
        assert two.agree("predictions.points", root=str(tmp_path), **options) == counts
    for n in SIZES:
        rows = compared(tmp_path)[f"predictions-n{n}.jsonl"]
        assert [row["index"] for row in rows] == list(range(n))
        assert [row["id"] for row in rows] == [f"é{index}" for index in range(n)]


def test_sequences_are_as_long_as_they_are_whatever_pads_them(two, tmp_path):
    lengths = [5, 1, 7, 2, 3, 9, 4]
    for alone in (False, True):
        two.agree("predictions.sequences", root=str(tmp_path), lengths=lengths, alone=alone)
    rows = compared(tmp_path)["predictions.jsonl"]
    assert [len(row["label"]) for row in rows] == lengths


def test_tags_are_as_many_as_tokens_without_anything_to_compare_them_with(two, tmp_path):
    lengths = [5, 1, 7, 2, 3, 9, 4]
    for alone in (False, True):
        two.agree("predictions.tags", root=str(tmp_path), lengths=lengths, alone=alone)
    rows = compared(tmp_path)["predictions.jsonl"]
    assert [len(row["output"]) for row in rows] == lengths
    assert all(0 <= tag < 5 for row in rows for tag in row["output"])


@pytest.mark.parametrize("n", [1, 7, 20])
def test_samples_of_a_stream_are_predicted_in_its_order(two, tmp_path, n):
    for alone in (False, True):
        two.agree("predictions.stream", root=str(tmp_path), n=n, alone=alone)
    rows = compared(tmp_path)["predictions.jsonl"]
    assert [row["index"] for row in rows] == list(range(n))


@pytest.mark.parametrize(("n", "batch_size"), [(1, 4), (5, 2), (8, 2)])
def test_samples_that_keep_ranks_in_step_are_not_predicted(two, tmp_path, n, batch_size):
    if two.framework != "torch":
        pytest.skip("this driver holds whole models")
    counts = two.agree("predictions.shards", root=str(tmp_path), n=n, batch_size=batch_size)
    assert counts == {"predictions.jsonl": n}
    lines = (tmp_path / "predictions.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(n))
