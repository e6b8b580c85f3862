"""Nothing in the package can execute what it reads: no pickle, no eval, no shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "expkit"

MODULES = frozenset(("pickle", "marshal", "shelve", "cloudpickle", "dill", "joblib"))
"""Reading by them executes."""

BUILTINS = frozenset(("eval", "exec", "__import__"))

NAMES = frozenset(
    (
        *BUILTINS,
        *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
        *("paddle.load", "paddle.jit.load", "paddle.static.load", "torch.jit.load"),
        *("torch.distributed.checkpoint.load", "torch.hub.load"),
        *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.Loader"),
        *("yaml.UnsafeLoader", "yaml.FullLoader", "tempfile.mktemp"),
    )
)
"""Never to be called, nor to be handed on."""

SAFE_WITH = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}
"""To be called with this argument only."""

EXCUSED = {
    ("data/workers/channel.py", "import pickle"),
    ("drivers/paddle/process_group.py", "import pickle"),
}
"""Processes of one run tell each other Python objects there; nothing of it comes from a file or
goes into one. A process and its fork do so over a socket that nobody else has; ranks over one that
asks each for the secret of the run (`expkit.drivers.paddle.meeting`). torch's own collectives do
the same inside torch."""


def unsafe(code: str) -> Iterator[str]:
    """What in a module can execute data, as it stands there."""
    tree = ast.parse(code)
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    known = {name: name for name in BUILTINS - own} | dict(_imported(tree))
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.split(".")[0] in MODULES:
                yield f"import {module}"
            names = (f"{module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if name in NAMES or name in SAFE_WITH)
        elif isinstance(node, ast.keyword) and node.arg == "shell" and not _is(node.value, False):
            yield "shell=True"
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = _dotted(node, known)
            if name in NAMES:
                yield name
            elif name in SAFE_WITH:
                keyword, value = SAFE_WITH[name]
                call = called.get(id(node))
                given = {each.arg: each.value for each in call.keywords} if call else {}
                if not (keyword in given and _is(given[keyword], value)):
                    yield f"{name} without {keyword}={value}"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local names of modules and what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    (alias.asname or alias.name.split(".")[0]),
                    (alias.name if alias.asname else alias.name.split(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """The full name of what an expression refers to; empty where that is no imported name."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, known)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_nothing_in_the_package_executes_what_it_reads():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    found = {
        (str(file.relative_to(PACKAGE)), what)
        for file in files
        for what in unsafe(file.read_text())
    }
    assert found == EXCUSED


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle as cp",
        "def f():\n    import marshal",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.load('x', weights_only=False)",
        "import torch\ntorch.load('x', weights_only=flag)",
        "import torch as t\nload = t.load",
        "from torch import load",
        "import paddle\npaddle.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x')",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from yaml import unsafe_load",
        "import torch.distributed.checkpoint as dcp\ndcp.load(state)",
        "eval('1')",
        "exec(code)",
        "run = eval",
        "import subprocess\nsubprocess.run('x', shell=True)",
        "import subprocess\nsubprocess.run('x', shell=how)",
        "import os\nos.system('x')",
        "import tempfile\ntempfile.mktemp()",
    ],
)
def test_each_of_them_is_seen(code):
    assert len(list(unsafe(code))) >= 1


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load('x', weights_only=True)",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import yaml\nyaml.safe_load(text)",
        "import subprocess\nsubprocess.run(['x'])\nsubprocess.run('x', shell=False)",
        "import re\nre.compile('x')",
        "model.eval()\nstore.load('last')\nself.compile()",
        "from expkit.core.store import load",
        "from . import load",
        "def split(eval):\n    return eval[0]",
    ],
)
def test_what_is_harmless_is_none_of_them(code):
    assert list(unsafe(code)) == []
