"""The options of the metrics group say what the classes say."""

import importlib
import inspect
from pathlib import Path

import expkit.conf
import pytest
import yaml

from expkit.core.metric import Metric

OPTIONS = sorted(Path(expkit.conf.__path__[0], "metrics").glob("*.yaml"))
METRICS = [
    pytest.param(path.stem, name, spec, id=f"{path.stem}-{name}")
    for path in OPTIONS
    for name, spec in yaml.safe_load(path.read_text()).items()
]
OWN = {
    ("tagging", "accuracy"): {"ignore_index": -1},  # what pads the tags
    ("tagging", "span_f1"): {"ignore_index": -1},
    ("binary", "f1"): {"average": "binary"},
}
"""What an option says differently from the class, on purpose."""


@pytest.mark.parametrize(("option", "name", "spec"), METRICS)
def test_each_metric_of_an_option_is_built_from_its_defaults(option, name, spec):
    module, _, kind = spec.pop("_target_").rpartition(".")
    target = getattr(importlib.import_module(module), kind)
    assert isinstance(target(**spec), Metric)
    parameters = inspect.signature(target).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    assert spec == defaults | OWN.get((option, name), {})
