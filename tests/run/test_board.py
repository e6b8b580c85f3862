from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from expkit.run.board import TensorBoardLogger
from expkit.run.event_file import EventFile


def read(directory: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def steps(directory: Path, tag: str) -> list[int]:
    return [event.step for event in read(directory).Scalars(tag)]


def test_scalars_are_read_by_tensorboard_under_split_and_name(tmp_path):
    logger = TensorBoardLogger(directory=tmp_path)
    logger.log("train", 1, 0, {"loss": 0.5, "lr": np.float32(0.25)})
    logger.log("eval", 1, 0, {"accuracy": 1, "top/5": math.nan})
    board = read(tmp_path)  # without a flush or close
    logger.close()
    assert board.Tags()["scalars"] == ["train/loss", "train/lr", "eval/accuracy", "eval/top/5"]
    assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [(1, 0.5)]
    assert board.Scalars("train/lr")[0].value == 0.25
    assert board.Scalars("eval/accuracy")[0].value == 1.0
    assert math.isnan(board.Scalars("eval/top/5")[0].value)
    assert abs(board.Scalars("train/loss")[0].wall_time - time.time()) < 60


def test_nothing_is_made_before_the_first_record(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    logger.flush()
    logger.close()
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_has_each_step_once(tmp_path):
    first = TensorBoardLogger(tmp_path)
    for step in range(1, 11):
        first.log("train", step, 0, {"loss": float(step)})
    second = TensorBoardLogger(tmp_path)  # the first was killed: never closed
    second.rewind(6)
    for step in range(7, 16):
        second.log("train", step, 0, {"loss": float(step)})
    assert steps(tmp_path, "train/loss") == list(range(1, 16))
    first.close()
    second.close()


def test_a_run_that_goes_on_elsewhere_begins_at_its_step(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    logger.rewind(6)
    for step in range(7, 16):
        logger.log("train", step, 0, {"loss": 1.0})
    logger.close()
    assert steps(tmp_path, "train/loss") == list(range(7, 16))


def test_a_file_cut_short_costs_its_last_record_only(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    for step in range(1, 11):
        logger.log("train", step, 0, {"loss": 1.0})
    logger.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    second = TensorBoardLogger(tmp_path)
    second.rewind(9)
    second.log("train", 10, 0, {"loss": 1.0})
    second.close()
    assert steps(tmp_path, "train/loss") == list(range(1, 11))


def test_the_config_is_shown_as_it_stands(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    logger.describe("a:\n  b: 1  # *note*", {})
    assert list(tmp_path.iterdir()) == []  # the first record shall not come later for it
    logger.log("train", 1, 0, {"loss": 0.5})
    logger.close()
    (event,) = read(tmp_path).Tensors("config")
    assert event.tensor_proto.string_val[0].decode() == "    a:\n      b: 1  # *note*\n"
    assert read(tmp_path).SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_the_config_of_a_run_that_goes_on_is_shown_too(tmp_path):
    for text in ("lr: 1", "lr: 2"):
        logger = TensorBoardLogger(tmp_path)
        logger.describe(text, {})
        if text == "lr: 2":
            logger.rewind(3)
        logger.log("train", 4, 0, {"loss": 0.5})
        logger.close()
    texts = [(e.step, e.tensor_proto.string_val[0]) for e in read(tmp_path).Tensors("config")]
    assert texts[-1] == (4, b"    lr: 2\n")
    assert steps(tmp_path, "train/loss") == [4]


def test_hparams_are_read_by_their_plugin(tmp_path):
    from tensorboard.plugins.hparams import metadata

    logger = TensorBoardLogger(tmp_path)
    hparams = {"optimizer": {"lr": 0.1, "nesterov": True}, "name": "x", "clip": None, "l": [1, 2]}
    logger.describe("", hparams)
    logger.conclude({"accuracy": 0.75})
    logger.close()
    board = read(tmp_path)
    content = board.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
    assert start.hparams["optimizer.lr"].number_value == 0.1
    assert start.hparams["optimizer.nesterov"].bool_value is True
    assert start.hparams["name"].string_value == "x"
    assert start.hparams["clip"].string_value == "null"
    assert start.hparams["l"].string_value == "[1, 2]"
    end = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG])
    assert end.end_time_secs >= start.start_time_secs > 0
    assert board.Scalars("result/accuracy")[0].value == 0.75


def test_a_write_error_is_one_warning_and_then_silence(tmp_path, monkeypatch, caplog):
    logger = TensorBoardLogger(tmp_path)
    for step in range(1, 5):
        logger.log("train", step, 0, {"loss": 1.0})

    def denied(self, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(EventFile, "write", denied)
    for step in range(5, 11):
        logger.log("train", step, 0, {"loss": 1.0})
    monkeypatch.undo()
    logger.log("train", 11, 0, {"loss": 1.0})  # would stand behind a hole
    logger.conclude({"loss": 1.0})
    logger.flush()
    logger.close()
    (warning,) = caplog.records
    assert "Permission denied" in warning.getMessage()
    assert steps(tmp_path, "train/loss") == [1, 2, 3, 4]


def test_a_file_in_the_way_is_one_warning(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("")
    logger = TensorBoardLogger(tmp_path)
    for step in range(3):
        logger.log("train", step, 0, {"loss": 1.0})
    logger.close()
    assert len(caplog.records) == 1


def test_a_scalar_costs_at_most_60_bytes(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    for step in range(1000):
        logger.log("train", step, 0, {"loss": 1.0})
    logger.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    assert path.stat().st_size <= 60 * 1000


def test_a_record_costs_less_than_a_fraction_of_a_millisecond(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    metrics = {"loss": 0.123456789, "lr": 1e-3, "grad_norm": 3.25, "samples_per_s": 12345.678}
    logger.log("train", 0, 0, metrics)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        for step in range(200):
            logger.log("train", step, 0, metrics)
        best = min(best, (time.perf_counter() - started) / 200)
    logger.close()
    assert best < 400e-6  # about 50 us on an idle core


@pytest.mark.parametrize("use", ["pass", "logger.log('train', 1, 0, {'loss': 1.0})"])
def test_no_framework_is_imported_and_tensorboard_only_when_needed(tmp_path, use):
    code = (
        "import sys; from pathlib import Path; from expkit.run.board import TensorBoardLogger\n"
        f"logger = TensorBoardLogger(Path({str(tmp_path)!r}))\n"
        f"{use}\n"
        "logger.close()\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert answer.stderr == ""
    modules = set(answer.stdout.split())
    assert not modules & {"torch", "paddle", "tensorflow", "fsspec"}
    assert ("tensorboard" in modules) == (use != "pass")
