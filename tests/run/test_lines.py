from __future__ import annotations

import errno
import os

import pytest

from expkit.run.lines import LineFile, keep_lines


def test_each_line_is_one_write_to_the_operating_system(tmp_path, monkeypatch):
    calls = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda *args: calls.append(args[1]) or write(*args))
    file = LineFile(tmp_path / "x")
    file.append(b"one\n")
    file.append(b"two\n")
    assert calls == [b"one\n", b"two\n"]
    assert (tmp_path / "x").read_bytes() == b"one\ntwo\n"  # without a flush or close
    file.close()


def test_the_file_is_made_by_the_first_line_only(tmp_path):
    file = LineFile(tmp_path / "x")
    file.close()
    assert not (tmp_path / "x").exists()


def test_a_line_after_a_torn_one_starts_afresh(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"one\ntw")
    file = LineFile(path)
    file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_after_a_full_disk_the_next_line_starts_afresh(tmp_path, monkeypatch):
    path = tmp_path / "x"
    file = LineFile(path)
    file.append(b"one\n")
    write = os.write
    answers = iter([lambda fd, data: write(fd, data[:2]), None])

    def full(fd, data):
        answer = next(answers)
        if answer is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return answer(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"two\n")
    file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_a_link_is_refused(tmp_path):
    target = tmp_path / "sentinel"
    target.write_bytes(b"mine\n")
    (tmp_path / "x").symlink_to(target)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        LineFile(tmp_path / "x").append(b"yours\n")
    assert target.read_bytes() == b"mine\n"


def test_keep_lines_drops_unwanted_and_torn_lines(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1\n2\n1\n1")
    keep_lines(path, lambda line: line == b"1\n")
    assert path.read_bytes() == b"1\n1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_keep_lines_makes_no_file(tmp_path):
    keep_lines(tmp_path / "x", lambda line: True)
    assert not list(tmp_path.iterdir())
