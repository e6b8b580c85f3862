from __future__ import annotations

import errno
import json
import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expkit.core.collective import SingleProcess
from expkit.core.errors import PredictionError
from expkit.run.predictions import file_of, write_predictions
from tests.metrics.conftest import ThreadRank


class Scripted:
    """Rows of one rank, by the name of the set."""

    def __init__(self, sets, group=None):
        self._sets = sets
        self.sets = tuple(sets)
        self.group = group or SingleProcess()

    def rows(self, name):
        return iter(self._sets[name])


def row(index, **fields):
    return {"index": index, "label": index % 3, **fields}


def read(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def on_ranks(directory, *parts, name=""):
    """Write as many parts at once as there are; what each rank returns."""
    board, gate = {}, threading.Barrier(len(parts))

    def run(rank):
        group = ThreadRank(rank, len(parts), board, gate)
        try:
            return write_predictions(Scripted({name: parts[rank]}, group), directory)
        except BaseException:
            gate.abort()
            raise

    with ThreadPoolExecutor(len(parts)) as pool:
        return [pool.submit(run, rank) for rank in range(len(parts))]


def files(directory):
    return sorted(path.name for path in directory.iterdir())


def test_each_set_has_a_file_and_each_sample_a_line(tmp_path):
    sets = {"dev": [row(0), row(1)], "test": [row(0)], "none": []}
    counts = write_predictions(Scripted(sets), tmp_path)
    names = ["predictions-dev.jsonl", "predictions-test.jsonl", "predictions-none.jsonl"]
    assert counts == dict(zip(names, [2, 1, 0], strict=True))
    assert files(tmp_path) == sorted(names)
    assert read(tmp_path / names[0]) == sets["dev"]
    assert (tmp_path / names[1]).read_bytes() == b'{"index":0,"label":0}\n'
    assert (tmp_path / names[2]).read_bytes() == b""


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("", "predictions.jsonl"),
        ("dev", "predictions-dev.jsonl"),
        ("zh-测试_1.0+", "predictions-zh-测试_1.0+.jsonl"),
        ("a/b", "predictions-a%2Fb.jsonl"),
        ("../x y%\n", "predictions-..%2Fx%20y%25%0A.jsonl"),
    ],
)
def test_the_name_of_a_set_is_that_of_its_file_as_far_as_it_can_be(name, file):
    assert file_of(name) == file


def test_a_name_that_is_too_long_for_a_file_is_shortened(tmp_path):
    names = ["é" * 300, "é" * 299 + "x", "a" * 160, "b" * 161]
    found = [file_of(name) for name in names]
    assert len(set(found)) == 4
    assert found[0].startswith("predictions-" + "é" * 80 + "-")
    assert found[2] == f"predictions-{'a' * 160}.jsonl"
    counts = write_predictions(Scripted({name: [row(0)] for name in names}), tmp_path)
    assert files(tmp_path) == sorted(counts) == sorted(found)


def test_lines_are_json_whatever_they_hold(tmp_path):
    odd = [row(0, id="名\n\u2028\ud800", x=float("nan")), row(1, id="é", x=[float("-inf"), None])]
    write_predictions(Scripted({"": odd}), tmp_path)
    first, second = read(tmp_path / "predictions.jsonl")
    assert (first["id"], first["x"]) == ("名\n\u2028\ud800", "NaN")
    assert second["x"] == ["-Infinity", None]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(1, 4), st.booleans(), st.randoms())
def test_any_share_of_the_ranks_makes_the_same_file(tmp_path_factory, n, ranks, runs, random):
    """Consecutive samples for each rank, or any others, as long as each rank has them in order."""
    directory = tmp_path_factory.mktemp("run")
    rows = [row(index, id="x" * random.randint(0, 3)) for index in range(n)]
    owners = [random.randrange(ranks) for _ in rows]
    if runs:
        owners.sort()
    parts = [[r for r, o in zip(rows, owners, strict=True) if o == rank] for rank in range(ranks)]
    told = [each.result() for each in on_ranks(directory, *parts)]
    assert told == [{"predictions.jsonl": n}] * ranks
    assert files(directory) == ["predictions.jsonl"]
    assert read(directory / "predictions.jsonl") == rows


def test_a_full_disk_leaves_nothing_and_what_was_there(tmp_path, monkeypatch):
    write_predictions(Scripted({"": [row(0)]}), tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PredictionError, match=r"cannot write .*predictions.jsonl: No space left"):
        write_predictions(Scripted({"": [row(0), row(1)]}), tmp_path)
    assert files(tmp_path) == ["predictions.jsonl"]
    assert read(tmp_path / "predictions.jsonl") == [row(0)]


def test_an_error_on_the_way_leaves_nothing(tmp_path):
    def failing():
        yield row(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_predictions(Scripted({"": failing()}), tmp_path)
    assert files(tmp_path) == []


def test_an_error_while_the_parts_are_joined_leaves_nothing(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def full_at_the_end(descriptor):
        synced.append(descriptor)
        if len(synced) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_the_end)
    first, second = (each.exception() for each in on_ranks(tmp_path, [row(0)], [row(1)]))
    assert "No space left" in str(first)
    assert "rank 0 failed" in str(second)
    assert files(tmp_path) == []


def test_a_directory_that_is_not_there_is_told(tmp_path):
    with pytest.raises(PredictionError, match=r"cannot write .*none/predictions.jsonl: No such"):
        write_predictions(Scripted({"": [row(0)]}), tmp_path / "none")


def test_memory_does_not_grow_with_the_number_of_samples(tmp_path):
    def peak(n):
        tracemalloc.start()
        write_predictions(Scripted({"": map(row, range(n))}), tmp_path)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(40_000) < peak(2_000) + 100_000
