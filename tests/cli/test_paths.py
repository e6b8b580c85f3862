"""Paths that no file can have, that lead in circles, or that may not be looked into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expkit.command_line import override
from expkit.core.errors import ConfigError
from expkit.project import init
from expkit.verify import verify
from tests.cli.conftest import SMALL, tree
from tests.cli.test_verify import lines, saved

LONG = ("x" * 300, "/".join(["x" * 200] * 30))


@pytest.fixture
def close(monkeypatch):
    """Let a directory be one that this user may not list; root may list all."""
    closed = set()

    def guard(name):
        function = getattr(os, name)

        def look(path="."):
            if Path(path) in closed:
                raise PermissionError(13, "Permission denied", str(path))
            return function(path)

        monkeypatch.setattr(os, name, look)

    for name in ("listdir", "scandir"):
        guard(name)
    return closed.add


@pytest.mark.parametrize("path", LONG)
@pytest.mark.parametrize(
    "args",
    [
        ("verify", "PATH"),
        ("convert", "PATH", "--to", "torch"),
        (SMALL, "resume=PATH"),
        (SMALL, "init_from=PATH"),
        ("task=evaluate", SMALL, "init_from=PATH"),
    ],
)
def test_a_path_that_is_too_long_is_refused_in_words(command, project, args, path):
    before = tree(project.path)
    done = command(*(arg.replace("PATH", path) for arg in args))
    assert (done.code, done.out) == (2, "")
    assert "File name too long" in done.err or "characters; allowed" in done.err
    assert "Traceback" not in done.err
    assert tree(project.path) == before


@pytest.mark.parametrize("path", LONG)
def test_nothing_is_written_to_a_path_that_is_too_long(command, project, path):
    saved(project.path / "kept", 1)
    before = tree(project.path)
    for args in (("convert", "kept", "--to", "torch", "--output", path), ("init", path)):
        done = command(*args)
        assert done.code in (1, 2), done.text
        assert "File name too long" in done.err or "does not say its framework" in done.err
    assert tree(project.path) == before


def test_a_link_that_leads_to_itself_is_refused(command, project):
    (project.path / "loop").symlink_to("loop")
    for args in (("verify", "loop"), ("convert", "loop", "--to", "torch"), ("resume=loop",)):
        done = command(*args)
        assert (done.code, done.out) == (2, ""), args
        assert "no directory" in done.err or "Too many levels" in done.err


def test_a_link_to_itself_below_a_run_takes_no_weights(command, project):
    assert command(SMALL).code == 0
    (project.run() / "converted").symlink_to("converted")
    done = command("convert", str(project.run()), "--to", "torch")
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_an_argument_that_is_no_path_is_refused(command, project, path):
    before = tree(project.path)
    for args in (
        ("verify", path),
        ("verify", ".", path),
        ("convert", path, "--to", "torch"),
        ("convert", ".", "--to", "torch", "--output", path),
        ("convert", ".", "--to", "torch", f"--output={path}"),
        ("init", path),
    ):
        done = command(*args)
        assert (done.code, done.out) == (2, ""), args
        assert "is empty" in done.err or "holds a NUL" in done.err
    assert tree(project.path) == before


def test_a_directory_that_may_not_be_listed_is_told_and_the_others_are_verified(
    command, project, close
):
    saved(project.path / "runs/a/checkpoints", 1)
    saved(project.path / "runs/c/checkpoints", 1)
    (project.path / "runs/b").mkdir()
    close(Path("runs/b"))
    done = command("verify", "runs")
    assert (done.code, done.err) == (1, "")
    assert [line for line in done.out.splitlines() if line[0] != " "] == [
        "runs/a/checkpoints",
        "runs/b",
        "runs/c/checkpoints",
    ]
    assert len(lines(done, "whole")) == 2
    assert len(lines(done, "Permission denied")) == 1


def test_a_checkpoint_in_a_directory_that_may_not_be_listed_is_verified(command, project, close):
    saved(project.path / "closed", 1)
    close(Path("closed"))
    assert command("verify", "closed/step-00000001").code == 0
    done = command("verify", "closed")
    assert (done.code, done.err) == (1, "")
    assert lines(done, "cannot look for checkpoints in closed: Permission denied")


def test_what_vanishes_while_it_is_looked_for_is_left_out(monkeypatch, tmp_path, capfd):
    saved(tmp_path / "a/checkpoints", 1)
    (tmp_path / "b").mkdir()
    scandir = os.scandir

    def vanish(path):
        if Path(path).name == "b":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert verify([str(tmp_path)]) == 0
    assert "b\n" not in capfd.readouterr().out


def test_too_long_a_directory_for_a_project_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="File name too long"):
        init([str(tmp_path / ("x" * 300))])


@pytest.mark.parametrize(
    "value",
    [
        "ü",
        "é/b",
        "null",
        "True",
        "5",
        "1e5",
        "-5",
        "nan",
        "inf",
        ".5",
        "a\\",
        "\\\\",
        'a\\"b\\\\',
        "..",
        ".",
    ],
)
def test_an_override_is_read_back_as_the_text_it_was_made_of(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(override("k", value)).value() == value
