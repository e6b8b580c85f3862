from __future__ import annotations

import errno
import logging
import os
import re
import warnings
from dataclasses import dataclass

import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.logs import RunLog, escape_control

log = logging.getLogger("some.module")


@dataclass
class At:
    step: int


@pytest.fixture(autouse=True)
def logging_is_left_as_it_was():
    root = logging.getLogger()
    before = (list(root.handlers), root.level, warnings.showwarning)
    yield
    assert (list(root.handlers), root.level, warnings.showwarning) == before


def test_the_file_tells_time_level_rank_step_and_module(tmp_path):
    with RunLog(tmp_path, console=False) as run_log:
        log.info("before")
        run_log.follow(At(10))
        log.warning("loss is %s", 0.5)
    lines = (tmp_path / "train.log").read_text().splitlines()
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{moment} INFO rank 0 step - some\.module: before", lines[0])
    assert re.fullmatch(rf"{moment} WARNING rank 0 step 10 some\.module: loss is 0\.5", lines[1])
    assert len(lines) == 2


def test_the_console_gets_the_text_alone(tmp_path, capsys):
    with RunLog(tmp_path):
        log.info("epoch 1")
        log.warning("careful")
        log.debug("hidden")
    captured = capsys.readouterr()
    assert captured.out == "epoch 1\nWARNING: careful\n"
    assert captured.err == ""


def test_other_ranks_write_their_own_file_and_do_not_speak(tmp_path, capsys):
    with RunLog(tmp_path, rank=3):
        log.info("here")
    assert "rank 3 step - some.module: here" in (tmp_path / "logs" / "rank3.log").read_text()
    assert not (tmp_path / "train.log").exists()
    assert capsys.readouterr().out == ""


def test_the_level_decides_what_is_written(tmp_path):
    with RunLog(tmp_path, level="DEBUG", console=False):
        log.debug("shown")
    with RunLog(tmp_path, level=logging.ERROR, console=False):
        log.warning("hidden")
    text = (tmp_path / "train.log").read_text()
    assert "shown" in text
    assert "hidden" not in text


def test_each_run_of_a_process_gets_its_own_lines_only(tmp_path, capsys):
    for number in (1, 2, 3):
        directory = tmp_path / str(number)
        directory.mkdir()
        with RunLog(directory):
            log.info("run %d", number)
    log.info("between")
    for number in (1, 2, 3):
        (line,) = (tmp_path / str(number) / "train.log").read_text().splitlines()
        assert line.endswith(f"run {number}")
    assert capsys.readouterr().out == "run 1\nrun 2\nrun 3\n"


def test_opening_a_second_log_closes_one_left_open(tmp_path, capsys):
    for name in "ab":
        (tmp_path / name).mkdir()
    first = RunLog(tmp_path / "a")
    second = RunLog(tmp_path / "b")
    log.info("hello")
    first.close()
    log.info("still here")
    second.close()
    second.close()
    assert (tmp_path / "a" / "train.log").read_text() == ""
    assert (tmp_path / "b" / "train.log").read_text().count("\n") == 2
    assert capsys.readouterr().out == "hello\nstill here\n"


def test_a_run_that_goes_on_appends(tmp_path):
    for text in ("first", "second"):
        with RunLog(tmp_path, console=False):
            log.info(text)
    first, second = (tmp_path / "train.log").read_text().splitlines()
    assert first.endswith("first")
    assert second.endswith("second")


def test_pythons_warnings_are_captured(tmp_path, capsys):
    with RunLog(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old option", UserWarning, stacklevel=1)
    assert "UserWarning: old option" in (tmp_path / "train.log").read_text()
    assert "WARNING: " in capsys.readouterr().out


def test_ten_thousand_equal_warnings_are_at_most_twenty_lines(tmp_path, capsys):
    with RunLog(tmp_path):
        for _ in range(10_000):
            log.warning("disk is slow")
        log.warning("another")
        log.info("disk is slow")
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert 2 < len(lines) <= 20
    assert any("10000 times" in line for line in lines)
    assert lines[-2].endswith("another")
    assert lines[-1].endswith("disk is slow")
    assert len(capsys.readouterr().out.splitlines()) == len(lines)


def test_counting_warnings_needs_bounded_memory(tmp_path):
    with RunLog(tmp_path, console=False) as run_log:
        for number in range(2000):
            log.warning("file %d", number)
        (repeats,) = [f for f in run_log._handlers[0].filters if hasattr(f, "_counts")]
        assert len(repeats._counts) <= 1024
    assert (tmp_path / "train.log").read_text().count("\n") == 2000


def test_control_characters_are_escaped_in_file_and_console(tmp_path, capsys):
    with RunLog(tmp_path):
        log.info("name \x1b[31m\r\x00\x9b\u202e\x7f é 数\ttab")
    expected = r"name \x1b[31m\r\x00\x9b\u202e\x7f é 数" + "\ttab\n"
    assert (tmp_path / "train.log").read_text().endswith(expected)
    assert capsys.readouterr().out == expected


def test_a_line_break_in_a_message_cannot_pass_for_a_record(tmp_path):
    with RunLog(tmp_path, console=False):
        log.info("one\n2026-11-30T07:12:03.125+00:00 ERROR rank 0 step 1 x: forged\u2028more")
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("    2026-")


def test_tracebacks_are_in_the_file(tmp_path):
    with RunLog(tmp_path, console=False):
        try:
            raise ValueError("bad value")
        except ValueError:
            log.exception("it ended")
    text = (tmp_path / "train.log").read_text()
    assert "it ended\n    Traceback (most recent call last):\n" in text
    assert "    ValueError: bad value\n" in text


def test_a_log_that_cannot_be_opened_is_an_error_with_path_and_reason(tmp_path):
    (tmp_path / "train.log").mkdir()
    with pytest.raises(RunDirectoryError, match=r"train\.log: Is a directory"):
        RunLog(tmp_path)


def test_a_pipe_in_place_of_the_log_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.log")
    with pytest.raises(RunDirectoryError, match=r"train\.log: Is a pipe"):
        RunLog(tmp_path)


def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path, capsys):
    with RunLog(tmp_path, console=False) as run_log:
        stream = run_log._handlers[0].stream

        def full(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        stream.write, write = full, stream.write
        for _ in range(5):
            log.info("lost")
        stream.write = write
        log.info("kept")
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert (tmp_path / "train.log").read_text().endswith("kept\n")


def test_a_log_file_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("expkit.run.logs._MAX_LOG_BYTES", 10_000)
    with RunLog(tmp_path, console=False):
        for number in range(1000):
            log.info("line %d", number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.log", "train.log.1"]
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    assert (tmp_path / "train.log").read_text().endswith("line 999\n")


def test_escapes_are_readable_and_plain_text_is_untouched():
    assert escape_control("a\x1b\u2028b") == r"a\x1b\u2028b"
    assert escape_control("tab\t line\n é 数") == "tab\t line\n é 数"
