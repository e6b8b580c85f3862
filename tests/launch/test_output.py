"""Where what ranks print goes."""

from __future__ import annotations

import threading
import time

import pytest

from expkit.launch import output
from expkit.launch.output import Console, RankOutput, Routes, readable

SAYINGS = {
    0: ["say", "out:main out\n", "err:main err\n"],
    1: ["say", "out:first out\n", "err:first err\n"],
    2: ["say", "out:second out\n", "err:second ", "err:err"],
}


@pytest.mark.parametrize(
    ("worker_output", "out", "err"),
    [
        ("only_error", {"main out"}, {"main err", "[rank 1] first err", "[rank 2] second err"}),
        (
            "all",
            {"main out", "[rank 1] first out", "[rank 2] second out"},
            {"main err", "[rank 1] first err", "[rank 2] second err"},
        ),
        ("ignore", {"main out"}, {"main err"}),
    ],
)
def test_the_console_shows_what_is_asked_for_and_files_have_it_all(
    launch, capfd, worker_output, out, err
):
    launch(SAYINGS, num_processes=3, worker_output=worker_output)
    shown = capfd.readouterr()
    assert (set(shown.out.splitlines()), set(shown.err.splitlines())) == (out, err)
    files = {file.name: set(file.read_text().splitlines()) for file in launch.logs.iterdir()}
    assert files == {
        "rank1.out": {"first out", "first err"},
        "rank2.out": {"second out", "second err"},
    }


def test_a_directory_gets_a_file_of_each_rank(launch, capfd):
    launch(SAYINGS, num_processes=3, worker_output=str(launch.directory / "words"))
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("main out\n", "main err\n")
    files = {file.name: file.read_text() for file in (launch.directory / "words").iterdir()}
    assert {name: set(text.splitlines()) for name, text in files.items()} == {
        "rank0.out": {"main out", "main err"},
        "rank1.out": {"first out", "first err"},
        "rank2.out": {"second out", "second err"},
    }
    assert not launch.logs.exists()


def test_rank_0_has_the_console_itself(launch, capfd):
    launch({0: ["say", "out:no line end", "err:\rbar"]})
    assert capfd.readouterr() == ("no line end", "\rbar")


@pytest.mark.parametrize("target", ["out", "err"])
def test_binary_output_without_end_neither_blocks_nor_fills_the_disk(
    launch, capfd, monkeypatch, target
):
    monkeypatch.setattr(output, "FILE_BYTES", 1 << 20)
    ended = launch({1: ["flood", 8, target]}, worker_output="ignore")
    assert ended.exit_code == 0
    size = (launch.logs / "rank1.out").stat().st_size
    assert 1 << 20 <= size < (1 << 20) + 100
    assert capfd.readouterr().out == ""


def test_what_ranks_say_while_they_are_being_ended_is_not_on_the_console(launch, capfd):
    launch({0: ["fail", 0.2], 1: ["complain_at_sigterm"]})
    assert "terminated" not in capfd.readouterr().err
    assert "terminated" in (launch.logs / "rank1.out").read_text()


@pytest.fixture
def rank_output(tmp_path):
    with Console() as console:
        yield lambda *shown, **more: RankOutput(1, Routes(tmp_path, shown, **more), console)


def test_pieces_of_a_line_are_shown_as_one(rank_output, tmp_path, capsys):
    one = rank_output("stdout", "stderr")
    for piece in (b"a", b"b\nc", b"\n", b"\n", b"d"):
        one.feed("stdout", piece)
    one.close()
    assert (tmp_path / "rank1.out").read_bytes() == b"ab\nc\n\nd\n"
    assert one.tail == ""


def test_a_line_without_end_is_kept_in_pieces(rank_output, tmp_path):
    one = rank_output()
    for _ in range(100):
        one.feed("stderr", b"x" * 1000)
    assert (tmp_path / "rank1.out").stat().st_size > 90_000
    assert len(one.tail) > 90_000
    one.close()
    assert (tmp_path / "rank1.out").read_bytes() == b"x" * 100_000 + b"\n"


def test_the_last_hundred_lines_of_stderr_are_remembered(rank_output):
    one = rank_output()
    one.feed("stderr", b"".join(b"%d\n" % number for number in range(250)))
    one.feed("stdout", b"not this\n")
    assert one.tail.splitlines() == [str(number) for number in range(150, 250)]
    one.close()


def test_a_restart_appends_and_the_limit_counts_what_is_there(rank_output, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "FILE_BYTES", 10)
    for _ in range(3):
        one = rank_output()
        one.feed("stdout", b"123456\n")
        one.close()
    assert (tmp_path / "rank1.out").read_bytes() == (b"123456\n123\n(what follows is left out)\n")


def test_a_disk_that_takes_nothing_does_not_end_the_supervisor(tmp_path, caplog):
    (tmp_path / "file").touch()
    with Console() as console:
        one = RankOutput(1, Routes(tmp_path / "file", ()), console)
        one.feed("stdout", b"text\n")
        one.feed("stdout", b"text\n")
        one.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain", "plain"),
        (b"windows\r", "windows"),
        (b" 10%\r 20%\r done", " done"),
        (b"\x1b[31mred\x1b[0m\ttab", "\x1b[31mred\x1b[0m\ttab"),
        (b"bell\x07 null\x00", "bell\ufffd null\ufffd"),
        ("Bär".encode(), "Bär"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_lines_are_shown_as_a_terminal_would(line, text):
    assert readable(line) == text


def test_a_console_that_takes_nothing_does_not_block(monkeypatch):
    class Stuck:
        def write(self, _):
            release.wait(10)

        def flush(self):
            pass

    release = threading.Event()
    monkeypatch.setattr("sys.stderr", Stuck())
    began = time.monotonic()
    console = Console()
    console._writer.start()
    for _ in range(1000):
        console.show("stderr", b"text\n")
    assert time.monotonic() - began < 2
    release.set()
