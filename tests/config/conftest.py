"""Checks run in an empty directory; a project is laid out by its files."""

import textwrap
from pathlib import Path

import pytest

from expkit.config.validation import check
from expkit.core.errors import ConfigError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def write(here):
    def write(name, text):
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def problems():
    """The problems of overrides, by key."""

    def find(*overrides, **options):
        with pytest.raises(ConfigError) as caught:
            check(overrides, **options)
        assert caught.value.exit_code == 2
        return {problem.key: problem for problem in caught.value.problems}

    return find


@pytest.fixture(scope="session")
def conf():
    return Path(__file__).parents[2] / "conf"
