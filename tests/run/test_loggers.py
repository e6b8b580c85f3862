from __future__ import annotations

from expkit.core.logger import Logger
from expkit.run.loggers import LoggerGroup
from expkit.run.records import JsonLinesLogger, read_records


class Recorder(Logger):
    def __init__(self):
        self.calls = []

    def log(self, split, step, epoch, metrics):
        self.calls.append((split, step, epoch, dict(metrics)))

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


class Broken(Logger):
    def __init__(self):
        self.calls = 0

    def log(self, split, step, epoch, metrics):
        self.calls += 1
        raise ConnectionError("no network")

    def flush(self):
        self.calls += 1

    def close(self):
        self.calls += 1


def test_every_logger_gets_every_record_in_order():
    first, second = Recorder(), Recorder()
    group = LoggerGroup([first, second])
    group.log("train", 1, 0, {"loss": 1.0})
    group.log("eval", 1, 0, {"accuracy": 0.5})
    group.flush()
    group.close()
    assert first.calls == second.calls
    assert first.calls == [
        ("train", 1, 0, {"loss": 1.0}),
        ("eval", 1, 0, {"accuracy": 0.5}),
        "flush",
        "close",
    ]


def test_a_logger_that_raises_is_named_once_and_left_out(caplog):
    broken, sound = Broken(), Recorder()
    group = LoggerGroup([broken, sound])
    for step in range(1, 4):
        group.log("train", step, 0, {"loss": 1.0})
    group.flush()
    assert broken.calls == 1
    assert len(sound.calls) == 4
    (warning,) = caplog.records
    assert "Broken" in warning.getMessage()
    assert "ConnectionError: no network" in warning.getMessage()


def test_rewind_reaches_the_loggers_that_write_files(tmp_path):
    group = LoggerGroup([Recorder(), JsonLinesLogger(tmp_path)])
    for step in (1, 2, 3):
        group.log("train", step, 0, {"loss": 1.0})
    group.rewind(1)
    group.close()
    assert [record.step for record in read_records(tmp_path / "metrics.jsonl")] == [1]
