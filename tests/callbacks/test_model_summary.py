from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from expkit.callbacks import ModelSummary
from expkit.callbacks.model_summary import ModuleSize, module_sizes
from expkit.core.errors import ConfigError

ARRAYS = {
    "scale": np.zeros(1),
    "body.first.weight": np.zeros((4, 3)),
    "body.first.bias": np.zeros(4),
    "body.norm.mean": np.zeros(5),
    "head.weight": np.zeros((2, 4)),
}
PARAMETERS = {
    "scale": SimpleNamespace(requires_grad=True),
    "body.first.weight": SimpleNamespace(requires_grad=False),
    "body.first.bias": SimpleNamespace(trainable=True),
    "head.weight": SimpleNamespace(trainable=False),
}


def test_sizes_are_grouped_by_path_in_the_order_of_the_model():
    assert module_sizes(ARRAYS, PARAMETERS, depth=2) == [
        ModuleSize("", 1, 1, 0),
        ModuleSize("body.first", 16, 4, 0),
        ModuleSize("body.norm", 0, 0, 5),
        ModuleSize("head", 8, 0, 0),
    ]


def test_depth_1_gives_the_children_of_the_model():
    assert module_sizes(ARRAYS, PARAMETERS, depth=1) == [
        ModuleSize("", 1, 1, 0),
        ModuleSize("body", 16, 4, 5),
        ModuleSize("head", 8, 0, 0),
    ]


def test_table_is_logged_before_training_with_a_total(context, caplog):
    caplog.set_level(logging.INFO)
    context.driver.parameters["layer.weight"] = np.zeros(1234)
    ModelSummary().fit_start(context)
    assert [record.getMessage() for record in caplog.records] == [
        "module  parameters  trainable  buffers",
        "layer        1,235      1,235        0",
        "norm             0          0        3",
        "total        1,235      1,235        3",
    ]


@pytest.mark.parametrize("depth", [0, 1.5, True])
def test_depth_below_1_or_not_whole_is_refused(depth):
    with pytest.raises(ConfigError, match=r"callbacks\.model_summary\.depth=2"):
        ModelSummary(depth)
