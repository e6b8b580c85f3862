from __future__ import annotations

import itertools
import os
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


def expkit_in(directory: Path, code: str, *args: str, **environment: str) -> str:
    """What ``python -m expkit`` prints, after some code of preparation."""
    module = "import runpy; runpy.run_module('expkit', run_name='__main__', alter_sys=True)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{module}", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_clone_works_without_an_install(tmp_path):
    alone = (
        "import sys\n"
        "sys.meta_path = [each for each in sys.meta_path if 'Editable' not in repr(each)]"
    )
    short = ("driver=numpy", "trainer.max_steps=1", "logger=none")
    assert "saved " in expkit_in(tmp_path, alone, *short, PYTHONPATH=str(ROOT))
    assert "n_epochs: auto" in expkit_in(tmp_path, alone, "--cfg", "job", PYTHONPATH=str(ROOT))


@pytest.mark.slow
def test_expkit_works_in_the_directory_that_holds_a_clone_with_a_build(tmp_path):
    clone = tmp_path / "expkit"
    for name in {"build", "dist", *(path.name for path in ROOT.iterdir() if path.is_dir())}:
        (clone / name).mkdir(parents=True)
    assert expkit_in(tmp_path, "", "--version") == f"expkit {expkit.__version__}\n"
    short = ("driver=numpy", "trainer.max_steps=1", "logger=none")
    assert "saved " in expkit_in(tmp_path, "", *short)


def test_no_module_has_the_name_of_a_directory_at_the_top_of_a_clone():
    modules = {path.stem for path in (ROOT / "expkit").iterdir() if path.name != "__pycache__"}
    directories = {"build", "dist", "docs", "tests", "examples", "benchmarks", "outputs", "conf"}
    assert not modules & directories


@pytest.mark.slow
def test_importing_expkit_imports_no_framework():
    code = "import expkit, expkit.core.trainer, expkit.data, sys; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "paddle", "hydra", "omegaconf", "sklearn"} & set(modules)
