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
    pytest.param(name, spec, id=f"{path.stem}-{name}")
    for path in OPTIONS
    for name, spec in yaml.safe_load(path.read_text()).items()
]


@pytest.mark.parametrize(("name", "spec"), METRICS)
def test_each_metric_of_an_option_is_built_from_its_defaults(name, spec):
    module, _, kind = spec.pop("_target_").rpartition(".")
    target = getattr(importlib.import_module(module), kind)
    assert isinstance(target(**spec), Metric)
    parameters = inspect.signature(target).parameters
    assert spec == {key: parameter.default for key, parameter in parameters.items()}
