from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import expkit

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("expkit/**/__init__.py")
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found | {"expkit.conf"}


def test_the_version_is_written_once_and_the_same():
    assert PYPROJECT["project"]["version"] == expkit.__version__ == version("expkit")


def test_constraints_pin_every_dependency():
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    for requirement in [*PYPROJECT["project"]["dependencies"], *itertools.chain(*extras)]:
        name = re.split(r"[\[<>=]", requirement)[0].strip().lower()
        assert name == "expkit" or name in pinned, requirement


@pytest.mark.slow
def test_importing_expkit_imports_no_framework():
    code = "import expkit, expkit.core.trainer, expkit.data, sys; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "paddle", "hydra", "omegaconf", "sklearn"} & set(modules)
