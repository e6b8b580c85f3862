import importlib
import sys

import pytest

from expkit.config.validation import check
from expkit.core.errors import ConfigError
from expkit.project import init, init_project


def test_project_is_laid_out_and_its_experiment_composes(here, capsys):
    assert init([]) == 0
    assert "python -m expkit experiment=my_experiment" in capsys.readouterr().out
    written = sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
    assert written == [
        "README.md",
        "conf/data/my_data.yaml",
        "conf/experiment/my_experiment.yaml",
        "conf/model/my_model.yaml",
        "my_data.py",
        "my_model.py",
    ]
    config = check(["experiment=my_experiment"]).config
    assert config["name"] == "my_experiment"
    assert config["model"]["in_features"] == 2


def test_its_data_is_split_and_seeded(here):
    init_project(here)
    try:
        spirals = importlib.import_module("my_data").spirals
    finally:
        sys.modules.pop("my_data", None)
    sets = spirals(num_samples=100)
    assert sets["train"]["x"].shape == (80, 2)
    assert sets["eval"]["y"].shape == (20,)
    assert (spirals(100)["train"]["x"] == sets["train"]["x"]).all()
    assert (spirals(100, split_seed=1)["train"]["x"] != sets["train"]["x"]).any()


def test_nothing_is_overwritten(here):
    (here / "my_model.py").write_text("mine")
    with pytest.raises(ConfigError, match=r"nothing is overwritten.*my_model\.py"):
        init_project(here)
    assert [path.name for path in here.iterdir()] == ["my_model.py"]
    assert (here / "my_model.py").read_text() == "mine"


def test_a_file_in_place_of_the_directory_is_refused(here):
    (here / "taken").write_text("")
    with pytest.raises(ConfigError, match="can't be written"):
        init_project(here / "taken")


def test_new_directory_is_made(here, capsys):
    init(["new dir"])
    assert (here / "new dir" / "README.md").is_file()
    assert "cd 'new dir' && " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"), [(["a", "b"], "at most one directory"), (["--force"], "no such argument")]
)
def test_other_arguments_are_refused(argv, told):
    with pytest.raises(ConfigError, match=told):
        init(argv)
