import subprocess
import sys

import pytest

from expkit.config.catalog import make_catalog
from expkit.config.help import help_text
from expkit.config.schema import CLOSED, RunConfig, defaults


def test_help_has_each_group_option_and_key_with_its_line():
    text = help_text()
    lines = text.splitlines()
    catalog = make_catalog()
    for group, options in catalog.groups.items():
        assert any(line.startswith(f"{group}=...") for line in lines), group
        for option in options.values():
            assert option.description
            assert option.description in text
    for key in defaults(RunConfig):
        assert any(line.startswith(f"  {key}=") for line in lines), key
    for key in defaults(CLOSED["trainer"]):
        assert key == "_target_" or f"trainer.{key}=" in text


def test_help_tells_the_default_option():
    assert "driver=... (default: torch)" in help_text()
    assert "callbacks=... (default: [progress])" in help_text()


def test_help_includes_the_users_options(write):
    write("conf/model/mine.yaml", "# A model of mine\n_target_: m.M\nwidth: 3  # how wide\n")
    text = help_text()
    assert "A model of mine" in text
    assert "model.width=3" in text
    assert "how wide" in text


@pytest.mark.slow
def test_help_imports_neither_hydra_nor_a_framework():
    program = (
        "import sys\nfrom expkit.config.help import help_text\nhelp_text()\n"
        "print([m for m in ('hydra', 'omegaconf', 'numpy', 'torch', 'paddle') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
