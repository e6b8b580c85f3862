"""The options of the group ``callbacks`` and the classes that they name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import expkit.callbacks

DIRECTORY = Path(__file__).parents[2] / "conf" / "callbacks"
FILES = sorted(path for path in DIRECTORY.glob("*.yaml") if path.stem != "none")


def node_of(path: Path) -> dict:
    content = yaml.safe_load(path.read_text())
    assert list(content) == [path.stem]
    return content[path.stem]


def test_every_callback_has_an_option():
    targets = {node_of(path)["_target_"] for path in FILES}
    assert targets == {f"expkit.callbacks.{name}" for name in expkit.callbacks.__all__}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_option_has_every_argument_with_its_default(path):
    node = node_of(path)
    kind = getattr(expkit.callbacks, node.pop("_target_").rpartition(".")[2])
    parameters = inspect.signature(kind).parameters
    assert list(node) == list(parameters)
    for name, parameter in parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            assert node[name] == parameter.default


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.yaml")), ids=lambda path: path.stem)
def test_option_begins_with_its_help_and_every_key_has_one(path):
    first, *rest = path.read_text().splitlines()
    assert first.startswith("# ")
    for line in rest:
        assert line == "{}" or " # " in line


def test_importing_callbacks_loads_no_framework_no_rich_and_no_hydra():
    code = (
        "import sys, expkit.callbacks\n"
        "print(sorted({'torch', 'paddle', 'rich', 'hydra', 'omegaconf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
