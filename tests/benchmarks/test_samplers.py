"""The sections on orders and on reading: what a table says, equal work, one tiny round."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks.orders import CHECK, MEASURE, MEMORY, ORDERS, respond
from benchmarks.reads import READERS, Reader, Reading
from benchmarks.reads import respond as read
from benchmarks.sections import loader, samplers


def test_a_line_of_orders_has_ratios_to_the_other_one():
    own = {"first_s": 1e-4, "seek_s": 5e-5, "indices_s": 1e7, "in_blocks_s": 3e7}
    other = {"first_s": 0.07, "seek_s": 0.2, "indices_s": 1e7}
    memory = [{"process_bytes": 0}, {"process_bytes": 46_000_000}]
    cells = samplers.row(10**6, "torch_random", [(own, other)] * 2, memory)
    line = dict(zip(samplers.COLUMNS, cells, strict=True))
    assert line["first index ms"].startswith("0.100 ")
    assert line["the same in blocks"].startswith("30.0 ")
    assert line["other's first / own"].startswith("700 ")
    assert line["other's seek / own"].startswith("4000 ")
    assert (line["process grows MB"], line["other's grows MB"]) == ("0.0", "46.0")
    alone = samplers.row(10**12, None, [(own, None)], memory[:1])
    assert dict(zip(samplers.COLUMNS, alone, strict=True))["other's first / own"] == "-"


def test_a_line_of_readers_has_ratios_and_the_target():
    own = {"samples_s": 3e6, "samples_cpu_s": 4e6, "first_s": 0.001}
    other = {"samples_s": 1e5, "samples_cpu_s": 1e5, "first_s": 0.2}
    line = dict(zip(loader.COLUMNS, loader.row("torch_expkit", [(own, other)] * 2), strict=True))
    assert line["samples/s / torch_loader"].startswith("30.0 ")
    assert line["per processor second / torch_loader"].startswith("40.0 ")
    assert line["target"] == ">= 30"
    assert line["million samples/s"].startswith("3.00 ")


@pytest.mark.parametrize("name", ORDERS)
def test_each_order_of_an_epoch_has_each_sample_once(name):
    if name != "expkit":
        pytest.importorskip("torch")
    order = ORDERS[name](3000)
    assert respond(order, CHECK) == {"is_permutation": True}
    part = 2 if name == "torch_distributed" else 1
    whole = list(order.begin(1))
    assert len(whole) == 3000 // part
    assert list(order.begin(1, 1000)) == whole[1000 // part :]
    assert whole != list(order.begin(2))


def test_an_order_is_measured_without_a_framework():
    order = ORDERS["expkit"](100_000)
    found = respond(order, MEASURE)
    assert {"first_s", "seek_s", "indices_s", "in_blocks_s"} == found.keys()
    assert all(value > 0 for value in found.values())
    assert 0 < respond(order, MEMORY)["traced_bytes"] < 100_000


class Broken(Reader):
    """Gives the samples in order, the first one twice, with another label."""

    def batches(self, epoch):
        class Tensor(np.ndarray):
            def numpy(self):
                return np.asarray(self)

        yield self.x[:1].view(Tensor), self.y[1:2].view(Tensor)
        yield self.x.view(Tensor), self.y.view(Tensor)


def test_what_is_not_equal_work_is_seen():
    found = read(Broken(Reading(100, 10)), "check")
    assert found == dict.fromkeys(("is_whole", "is_shuffled", "is_matched", "is_batched"), False)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_each_reader_does_equal_work(name):
    pytest.importorskip(name.partition("_")[0])
    assert all(read(READERS[name](Reading(1000, 32)), "check").values())


@pytest.mark.slow
@pytest.mark.parametrize("section", ["samplers", "loader"])
def test_one_tiny_round_runs(tmp_path, capsys, section):
    pytest.importorskip("torch")
    only = {"samplers": "torch_random", "loader": "torch_expkit"}[section]
    code = command.main(["run", section, "--quick", "--only", only, "--results", str(tmp_path)])
    saved = json.loads((tmp_path / f"{section}.json").read_text())
    assert (code, saved["problems"]) == (0, [])
    assert f"| {only} |" in capsys.readouterr().out
