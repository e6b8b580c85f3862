"""A file that is written atomically is the old one or the new one, and leaves nothing beside it."""

from __future__ import annotations

import errno
import os
import shutil
import stat

import pytest

from expkit.run.atomic import (
    remove_leftovers,
    temporary_sibling,
    write_atomically,
    write_durably,
)


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(3 << 20)])
def test_the_content_is_what_was_given(tmp_path, data):
    file = tmp_path / "file"
    for _ in range(2):
        write_atomically(file, data)
        assert file.read_bytes() == data
    assert list(tmp_path.iterdir()) == [file]


def test_permissions_are_the_mode_less_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"")
        write_atomically(tmp_path / "secret", b"", mode=0o600)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_link_is_replaced_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"stays")
    link = tmp_path / "link"
    link.symlink_to(outside)
    write_atomically(link, b"new")
    assert not link.is_symlink()
    assert outside.read_bytes() == b"stays"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, call):
    file = tmp_path / "file"
    write_atomically(file, b"old")

    def broken(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, broken)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_names_its_file(tmp_path, monkeypatch):
    def broken(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(OSError, match="Input/output error") as caught:
        write_durably(tmp_path / "file", [b"x"])
    assert caught.value.filename == str(tmp_path / "file")


def test_writes_that_take_only_a_part_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[: 1 + len(data) // 2]))
    chunks = [os.urandom(1 << 20), memoryview(os.urandom(99_999)), b""]
    write_durably(tmp_path / "file", chunks)
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_durably(tmp_path / "file", [b"new"])


def test_only_leftovers_are_removed_and_links_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    temporary_sibling(tmp_path / "a").touch()
    temporary_sibling(tmp_path / "b").mkdir()
    temporary_sibling(tmp_path / "c").symlink_to(outside)
    (tmp_path / ".hidden.tmp").touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"outside", ".hidden.tmp"}
    assert (outside / "precious").exists()


def test_a_leftover_that_cannot_be_removed_is_told_and_the_others_go(tmp_path, monkeypatch, caplog):
    stuck, other = temporary_sibling(tmp_path / "a"), temporary_sibling(tmp_path / "b")
    stuck.mkdir()
    other.touch()

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    remove_leftovers(tmp_path / "absent", tmp_path)
    assert list(tmp_path.iterdir()) == [stuck]
    assert f"{stuck}, which a killed run has left, cannot be removed: " in caplog.text
