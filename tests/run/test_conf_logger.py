from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from expkit.core.logger import Logger

CONF = Path(__file__).parents[2] / "conf" / "logger"


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_option_gives_loggers_that_take_the_run_directory(path, tmp_path):
    for node in (yaml.safe_load(path.read_text()) or {}).values():
        module, _, name = node.pop("_target_").rpartition(".")
        logger = getattr(importlib.import_module(module), name)(directory=tmp_path, **node)
        assert isinstance(logger, Logger)
        logger.close()


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_option_and_key_says_what_it_is(path):
    first, *rest = path.read_text().splitlines()
    assert first.startswith("# ")
    assert all("  # " in line for line in rest if ": " in line)


def test_the_options_are_tensorboard_csv_and_none():
    assert {path.stem for path in CONF.glob("*.yaml")} == {"tensorboard", "csv", "none"}
