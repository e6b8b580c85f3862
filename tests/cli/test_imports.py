"""What a command imports, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import SMALL, info


def test_importing_expkit_changes_nothing_and_imports_no_framework():
    script = (
        "import os, random, sys\n"
        "import numpy\n"
        "def look(): return dict(os.environ), list(sys.argv), list(sys.path), random.getstate(), "
        "str(numpy.random.get_state()), os.getcwd()\n"
        "before = look()\n"
        "import expkit, expkit.app, expkit.job, expkit.sweep, expkit.builder, expkit.worker\n"
        "assert look() == before\n"
        "assert not {'torch', 'paddle', 'sklearn', 'tensorboard'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_numpy_driver_imports_no_framework(imported, project):
    done, modules = imported(SMALL)
    assert done.code == 0, done.text
    assert not {"torch", "paddle"} & modules


@pytest.mark.slow
@pytest.mark.parametrize(("driver", "other"), [("torch", "paddle"), ("paddle", "torch")])
def test_only_the_chosen_framework_is_imported(imported, project, driver, other):
    pytest.importorskip(driver)
    done, modules = imported(SMALL, f"driver={driver}")
    assert done.code == 0, done.text
    assert driver in modules
    assert other not in modules
    assert info(project.run())["driver"] == driver


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_framework_that_is_not_installed_is_named_with_its_extra(project, framework):
    (project.path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {framework!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    project.environment = {"PYTHONPATH": str(project.path)}
    done = project.process(SMALL, f"driver={framework}")
    assert done.code == 2
    assert f"pip install 'expkit[{framework}]'" in done.err
    assert len(done.err.splitlines()) == 2
    assert not (project.path / "outputs").exists()
    assert project.process(SMALL, "trainer.max_steps=1").code == 0  # others go on without it
