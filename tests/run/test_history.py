"""What an earlier run was made from, where its directory holds anything by these names."""

from __future__ import annotations

import os

import pytest

from expkit.core.errors import RunDirectoryError
from expkit.run.history import changed_keys, saved_config, saved_overrides, trainings

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "it holds an alias"),
        ("a: &a [*a]", "it holds an alias"),
        ("[" * 200, "nested more than 100 deep"),
        ("[" * 100_000, "cannot be read"),
        ("#" * (3 << 20), "bytes, more than"),
        ("a: [", "cannot be read"),
        ("[1]", "it holds no config"),
        ("init_from: [1]", "init_from is no path"),
    ],
    ids=["bomb", "circle", "deep", "deeper", "large", "torn", "list", "init_from"],
)
def test_a_config_that_no_run_writes_is_refused(tmp_path, text, reason):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(RunDirectoryError, match=reason):
        saved_config(tmp_path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "config.yaml")
    with pytest.raises(RunDirectoryError, match="no regular file"):
        saved_config(tmp_path)
    (tmp_path / "config.yaml").rmdir() if make is os.mkdir else (tmp_path / "config.yaml").unlink()
    (tmp_path / "config.yaml").write_text("seed: 1")
    make(tmp_path / "overrides.yaml")
    with pytest.raises(
        RunDirectoryError, match=r"overrides\.yaml cannot be read: it is no regular file"
    ):
        saved_overrides(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "deep"])
def test_a_run_that_cannot_be_read_is_not_among_the_trainings(tmp_path, kind):
    for name in ("a", "b"):
        (tmp_path / "day" / name).mkdir(parents=True)
    (tmp_path / "day/a/run.json").write_text(
        '{"task": "train", "created": "2026-11-30T07:12:03+00:00"}'
    )
    if kind == "pipe":
        os.mkfifo(tmp_path / "day/b/run.json")
    else:
        (tmp_path / "day/b/run.json").write_text("[" * 100_000)
    assert trainings(tmp_path) == [tmp_path / "day/a"]


def test_a_value_that_no_command_line_has_is_told_as_text(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 2020-01-02")
    assert list(changed_keys(saved_config(tmp_path), {"seed": 3})) == ['seed: "2020-01-02" -> 3']
