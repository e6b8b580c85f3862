"""A user's own code and options, from their own directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, config, info, records

MY_MODEL = '''
from expkit.models.numpy import Mlp


class Wide(Mlp):
    """An MLP by another name."""
'''

SHORT_DATA = """
source:
  _target_: my_data.tiny
info:
  num_features: 4
  num_outputs: 2
"""


@pytest.fixture
def own_model(project):
    (project.path / "my_model.py").write_text(MY_MODEL)
    (project.path / "conf/model").mkdir()
    (project.path / "conf/model/wide.yaml").write_text(
        "_target_: my_model.Wide\nin_features: ${data.info.num_features}\nhidden: [3]\n"
        "out_features: ${data.info.num_outputs}\n"
    )


def test_own_code_and_options_are_found_beside_the_built_in_ones(own_model, command, project):
    done = command(SMALL, "model=wide")
    assert done.code == 0, done.text
    assert config(project.run())["model"]["_target_"] == "my_model.Wide"


def test_the_console_script_finds_them_too(own_model, project):
    script = Path(sys.executable).with_name("expkit")
    # The script's own directory comes first in its path, not the working directory.
    command = (
        [str(script)]
        if script.exists()
        else [
            sys.executable,
            "-P",
            "-c",
            ("import sys; from expkit.__main__ import main; sys.argv[0] = 'expkit'; main()"),
        ]
    )
    done = subprocess.run(
        [*command, SMALL, "model=wide"], cwd=project.path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert info(project.run())["argv"][1:] == [SMALL, "model=wide"]


def test_a_config_directory_can_be_named(own_model, command, project):
    (project.path / "conf").rename(project.path / "mine")
    assert command("--config-dir", "mine", SMALL, "model=wide").code == 0
    done = command("--config-dir", "nowhere", SMALL)
    assert done.code == 2
    assert str(project.path / "nowhere") in done.err
    assert len(done.err.splitlines()) == 2


def test_the_users_defaults_hold_for_all_runs_until_the_command_line_says_otherwise(
    command, project
):
    (project.path / "conf/local").mkdir()
    (project.path / "conf/local/default.yaml").write_text("# @package _global_\nseed: 77\n")
    command(SMALL)
    command(SMALL, "seed=5")
    assert [config(run)["seed"] for run in project.runs()] == [77, 5]


def test_an_error_in_own_code_is_shown_with_its_cause_and_key(own_model, command, project):
    (project.path / "my_model.py").write_text("import not_there\n")
    done = command(SMALL, "model=wide")
    assert done.code == 2
    assert "model._target_" in done.text
    assert "not_there" in done.text


@pytest.mark.parametrize("mark", ["", "+"])
def test_a_key_that_the_users_file_leaves_out_is_given_on_the_command_line(command, project, mark):
    (project.path / "conf/data/short.yaml").write_text(SHORT_DATA)
    given = [SMALL, "data=short", "logger=none", f"{mark}data.global_batch_size="]
    shown = command("--cfg", "job", *given[:-1], f"{given[-1]}10")
    assert shown.code == 0, shown.text
    assert "global_batch_size: 10" in shown.out
    done = command(*given[:-1], f"{given[-1]}10")
    assert done.code == 0, done.text
    assert [record.step for record in records(project.run())] == [1, 2, 3, 4]
    swept = command("-m", *given[:-1], f"{given[-1]}5,10")
    assert swept.code == 0, swept.text
    assert " data.global_batch_size=5 " in swept.out
    jobs = sorted(project.path.glob("outputs/*/*-sweep-*/*/run.json"))
    assert [config(job.parent)["data"]["global_batch_size"] for job in jobs] == [5, 10]
    assert [len(records(job.parent)) for job in jobs] == [8, 4]


@pytest.mark.slow
def test_a_new_project_runs_as_it_is(project, tmp_path):
    pytest.importorskip("torch")
    done = project.process("init", "fresh")
    assert done.code == 0, done.text
    project.path = tmp_path / "fresh"
    command = done.out.strip().splitlines()[-1].partition("python -m expkit ")[2].split()
    ran = project.process(*command, "debug=fast")
    assert ran.code == 0, ran.text
    assert info(project.run())["status"] == "completed"
