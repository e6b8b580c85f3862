from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from expkit import optimizers
from expkit.core.errors import ConfigError
from expkit.drivers.optimizer_set import assign_parameters
from expkit.optimizers import SGD, Adam, AdamW, Native

CONF = Path(__file__).parents[1] / "conf" / "optimizer"
PATHS = ["encoder.weight", "encoder.bias", "head.weight", "head.bias"]


@pytest.mark.parametrize(
    ("kind", "options", "key"),
    [
        (SGD, {"lr": 0}, "optimizer.lr"),
        (SGD, {"lr": -1}, "optimizer.lr"),
        (SGD, {"lr": math.nan}, "optimizer.lr"),
        (SGD, {"lr": math.inf}, "optimizer.lr"),
        (SGD, {"lr": "fast"}, "optimizer.lr"),
        (SGD, {"lr": True}, "optimizer.lr"),
        (SGD, {"weight_decay": -0.1}, "optimizer.weight_decay"),
        (SGD, {"momentum": 1.0}, "optimizer.momentum"),
        (SGD, {"momentum": -0.1}, "optimizer.momentum"),
        (SGD, {"momentum": 0.9, "nesterov": "yes"}, "optimizer.nesterov"),
        (Adam, {"betas": [0.9, 1.0]}, "optimizer.betas"),
        (Adam, {"betas": [0.9]}, "optimizer.betas"),
        (Adam, {"betas": 0.9}, "optimizer.betas"),
        (AdamW, {"betas": ["a", "b"]}, "optimizer.betas"),
        (AdamW, {"eps": 0}, "optimizer.eps"),
        (Adam, {"params": 3}, "optimizer.params"),
        (Adam, {"params": []}, "optimizer.params"),
        (Adam, {"groups": [{"weight_decay": 0}]}, "optimizer.groups[0]"),
        (Adam, {"groups": [{"params": "*"}]}, "optimizer.groups[0]"),
        (Adam, {"groups": "all"}, "optimizer.groups[0]"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_key_and_value(kind, options, key):
    with pytest.raises(ConfigError) as caught:
        kind(**options)
    problem = caught.value.problems[0]
    assert problem.key == key
    assert "allowed" in problem.message
    assert problem.hint


def test_nesterov_without_momentum_is_refused_because_it_has_no_effect():
    with pytest.raises(ConfigError, match=r"no effect.*optimizer.momentum=0.9"):
        SGD(nesterov=True)


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        Adam(lr=-1, eps=-1, betas=[2, 2], weight_decay=-1)
    assert [p.key.partition(".")[2] for p in caught.value.problems] == [
        "lr",
        "weight_decay",
        "betas",
        "eps",
    ]


def test_what_is_not_callable_is_no_native_optimizer():
    with pytest.raises(ConfigError, match="_partial_=true"):
        Native(optimizer=3)


def test_a_misspelt_group_option_gets_the_nearest_name():
    spec = Adam(groups=[{"params": "*.bias", "weigt_decay": 0}])
    with pytest.raises(ConfigError, match="did you mean weight_decay"):
        assign_parameters({"default": spec}, PATHS)


def test_a_group_option_is_checked_like_any_other():
    spec = Adam(groups=[{"params": "*.bias", "lr": -1}])
    with pytest.raises(ConfigError, match="lr: is -1"):
        assign_parameters({"default": spec}, PATHS)


def test_without_groups_everything_is_one_group():
    (group,) = assign_parameters({"default": Adam()}, PATHS)
    assert group.paths == tuple(PATHS)
    assert group.spec == Adam()


def test_the_first_group_that_matches_counts_and_the_rest_comes_first():
    spec = Adam(
        lr=0.1,
        groups=[
            {"params": "*.bias", "weight_decay": 0.5},
            {"params": ["head.*"], "lr": 0.2},
        ],
    )
    rest, biases, head = assign_parameters({"default": spec}, PATHS)
    assert rest.paths == ("encoder.weight",)
    assert biases.paths == ("encoder.bias", "head.bias")
    assert head.paths == ("head.weight",)
    assert (biases.spec.weight_decay, biases.spec.lr) == (0.5, 0.1)
    assert (head.spec.weight_decay, head.spec.lr) == (0.0, 0.2)


def test_optimizers_take_the_parameters_that_their_patterns_match():
    specs = {"a": Adam(params="encoder.*"), "b": SGD(params=["head.*"])}
    a, b = assign_parameters(specs, PATHS)
    assert (a.optimizer, a.paths) == (0, ("encoder.weight", "encoder.bias"))
    assert (b.optimizer, b.paths) == (1, ("head.weight", "head.bias"))


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            {"default": Adam(params="decoder.*")},
            r"optimizer.params: is 'decoder.\*', which matches",
        ),
        (
            {"default": Adam(groups=[{"params": "x", "lr": 1}])},
            r"groups\[0\]: is 'x', which matches",
        ),
        (
            {"default": Adam(groups=[{"params": "*", "lr": 1}, {"params": "*.bias", "lr": 2}])},
            r"groups\[1\].*earlier groups have taken",
        ),
        ({"a": Adam(), "b": SGD()}, r"optimizer.b: trains encoder.weight, and so does a"),
    ],
)
def test_patterns_without_effect_and_parameters_in_two_optimizers_are_refused(specs, message):
    with pytest.raises(ConfigError, match=message):
        assign_parameters(specs, PATHS)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ConfigError, match="no parameter to train"):
        assign_parameters({"default": Adam()}, [])


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_config_files_show_every_option_with_its_default_and_a_comment(path):
    text = path.read_text()
    config = yaml.safe_load(text)
    kind = getattr(optimizers, config.pop("_target_").rpartition(".")[2])
    assert kind(**config) == kind()
    assert set(config) == {option.name for option in fields(kind)}
    first, *rest = text.splitlines()
    assert first.startswith("# ")
    assert all("  # " in line for line in rest)
