from __future__ import annotations

import json
import logging
import math
import os
import time

import numpy as np
import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.loggers import LoggerGroup
from expkit.run.records import METRICS_FILE, JsonLinesLogger, Record, read_records, truncate_after


@pytest.fixture
def logger(tmp_path):
    logger = JsonLinesLogger(tmp_path)
    yield logger
    logger.close()


def test_a_record_is_on_disk_at_once_with_the_documented_keys(tmp_path, logger):
    before = time.time()
    logger.log("train", 10, 0, {"loss": 0.5, "lr": 1e-3})
    line = json.loads((tmp_path / METRICS_FILE).read_text())
    assert list(line) == ["step", "epoch", "time", "split", "metrics"]
    assert abs(line.pop("time") - before) < 60
    assert line == {
        "step": 10,
        "epoch": 0,
        "split": "train",
        "metrics": {"loss": 0.5, "lr": 1e-3},
    }


def test_records_come_back_as_they_were_written(tmp_path, logger):
    logger.log("train", 1, 0, {"loss": math.nan, "up": math.inf, "down": -math.inf})
    logger.log("eval", 2, 0, {"accuracy": np.float32(0.25), "count": 3, "名": 2 / 3})
    first, second = read_records(tmp_path / METRICS_FILE)
    assert isinstance(first, Record)
    assert (first.split, first.step, first.epoch) == ("train", 1, 0)
    assert math.isnan(first.metrics["loss"])
    assert (first.metrics["up"], first.metrics["down"]) == (math.inf, -math.inf)
    assert second.metrics == {"accuracy": 0.25, "count": 3, "名": 2 / 3}
    assert second.time >= first.time


def test_times_never_go_back(tmp_path, logger, monkeypatch):
    logger.log("train", 1, 0, {"loss": 1.0})
    past = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: past)
    logger.log("train", 2, 0, {"loss": 1.0})
    first, second = read_records(tmp_path / METRICS_FILE)
    assert second.time >= first.time


def test_a_torn_last_line_is_left_out_silently(tmp_path, logger, caplog):
    logger.log("train", 1, 0, {"loss": 1.0})
    path = tmp_path / METRICS_FILE
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 1):
        path.write_bytes(whole + whole[:cut])
        assert [record.step for record in read_records(path)] == [1]
    assert not caplog.records


def test_a_damaged_line_in_the_middle_is_reported_with_its_number(tmp_path, logger, caplog):
    path = tmp_path / METRICS_FILE
    path.write_bytes(b'{"step":1,"ep')
    logger.log("train", 2, 0, {"loss": 1.0})
    assert [record.step for record in read_records(path)] == [2]
    assert "line 1 is damaged" in caplog.text


def test_a_run_without_records_has_none(tmp_path):
    assert read_records(tmp_path / METRICS_FILE) == []


def test_truncate_drops_later_steps_and_a_torn_line(tmp_path, logger):
    for step in range(1, 11):
        logger.log("train", step, 0, {"loss": 1.0})
    path = tmp_path / METRICS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + b'{"step":')
    truncate_after(path, 6)
    assert path.read_bytes() == b"".join(lines[:6])


def test_a_resumed_run_has_each_step_once(tmp_path):
    first = JsonLinesLogger(tmp_path)
    for step in range(1, 11):
        first.log("train", step, 0, {"loss": float(step)})
    second = JsonLinesLogger(tmp_path)  # the first was killed: never closed
    second.rewind(6)
    for step in range(7, 16):
        second.log("train", step, 0, {"loss": float(step)})
    assert [record.step for record in read_records(second.path)] == list(range(1, 16))
    first.close()
    second.close()


def test_rewind_works_after_records_of_the_same_process(tmp_path, logger):
    for step in (1, 2, 3):
        logger.log("train", step, 0, {"loss": 1.0})
    logger.rewind(1)
    logger.log("train", 2, 0, {"loss": 1.0})
    assert [record.step for record in read_records(logger.path)] == [1, 2]


def test_a_failed_write_is_one_warning_and_later_records_are_kept(
    tmp_path, logger, caplog, monkeypatch
):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for step in range(1, 6):
            logger.log("train", step, 0, {"loss": 1.0})
    logger.log("train", 6, 0, {"loss": 1.0})
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert METRICS_FILE in warning.getMessage()
    assert "No space left" in warning.getMessage()
    assert [record.step for record in read_records(logger.path)] == [6]


def test_closing_twice_is_safe(logger):
    logger.log("train", 1, 0, {"loss": 1.0})
    logger.flush()
    logger.close()
    logger.close()


def test_a_record_costs_less_than_a_fraction_of_a_millisecond(logger):
    metrics = {"loss": 0.123456789, "lr": 1e-3, "grad_norm": 3.25, "samples_per_s": 12345.678}
    logger.log("train", 1, 0, metrics)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        for step in range(200):
            logger.log("train", step, 0, metrics)
        best = min(best, (time.perf_counter() - started) / 200)
    assert best < 200e-6  # about 20 us on an idle core


def test_a_record_of_one_scalar_is_under_120_bytes(tmp_path, logger):
    for step in range(1000):
        logger.log("train", step, 0, {"loss": 1 / (step + 1)})
    assert (tmp_path / METRICS_FILE).stat().st_size < 120 * 1000


@pytest.mark.parametrize(
    "line",
    [
        b'{"step":"10","epoch":0,"time":1.0,"split":"train","metrics":{}}',
        b'{"step":null,"epoch":0,"time":1.0,"split":"train","metrics":{}}',
        b'{"step":true,"epoch":0,"time":1.0,"split":"train","metrics":{}}',
        b'{"step":1,"epoch":0.5,"time":1.0,"split":"train","metrics":{}}',
        b'{"step":1,"epoch":0,"time":"now","split":"train","metrics":{}}',
        b'{"step":1,"epoch":0,"time":1.0,"split":null,"metrics":{}}',
        b"[" * 200_000,
    ],
)
def test_a_line_of_another_kind_is_a_damaged_one(tmp_path, logger, line):
    file = tmp_path / METRICS_FILE
    file.write_bytes(line[:100_000] + b"\n")
    logger.log("train", 2, 0, {"loss": 0.5})
    assert [record.step for record in read_records(file)] == [2]
    truncate_after(file, 2)
    assert [record.step for record in read_records(file)] == [2]
    assert file.read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path, logger, make):
    make(tmp_path / METRICS_FILE)
    with pytest.raises(OSError, match="no regular file"):
        read_records(tmp_path / METRICS_FILE)
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl holds after step 3: it is no reg"):
        LoggerGroup([logger]).rewind(3)
