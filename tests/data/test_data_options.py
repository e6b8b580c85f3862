from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import yaml

from expkit.core.errors import DataError
from expkit.data import Data, Ragged, Splits, sampler, sources

CONF = Path(__file__).parents[2] / "conf"


def read(group: str, name: str) -> dict:
    return yaml.safe_load((CONF / group / f"{name}.yaml").read_text())


@pytest.mark.parametrize("path", sorted((CONF / "data").glob("*.yaml")), ids=lambda p: p.stem)
def test_loader_options_have_the_defaults_of_the_class(path):
    options = read("data", path.stem)
    parameters = inspect.signature(Data.__init__).parameters
    for key in options.keys() - {"source", "info"}:
        assert options[key] == parameters[key].default, key
    assert {"batch_size", "num_workers", "drop_last"} <= options.keys()


def in_all(splits: Splits, name: str) -> np.ndarray:
    """The values of a field in all samples, rows of different length end to end."""
    fields = [part[name] for part in (splits.train, splits.eval)]
    return np.concatenate([f.values if isinstance(f, Ragged) else f for f in fields])


def longest(field: np.ndarray | Ragged) -> int:
    return field.lengths.max() if isinstance(field, Ragged) else field.shape[1]


@pytest.mark.parametrize("name", sources.__all__)
def test_info_is_true_of_the_data(name):
    options = read("data", name)
    source, info = options["source"], options["info"]
    assert source.pop("_target_") == f"expkit.data.sources.{name}"
    info = {
        key: source[value.removeprefix("${data.source.").removesuffix("}")]
        if isinstance(value, str)
        else value
        for key, value in info.items()
    }
    try:
        splits = getattr(sources, name)(**source)
    except DataError as error:
        pytest.skip(str(error))
    x, y = splits.train["x"], in_all(splits, "y")
    if "num_features" in info:
        assert info["num_features"] == x[0].size
    if "image_size" in info:
        assert x.shape[1:] == (info["num_channels"], info["image_size"], info["image_size"])
    if "vocab_size" in info:
        assert info["vocab_size"] == in_all(splits, "x").max() + 1
    if "ngram_vocab_size" in info:
        assert info["ngram_vocab_size"] == in_all(splits, "ngrams").max() + 1
    if "seq_length" in info:
        assert info["seq_length"] == max(longest(splits.train["x"]), longest(splits.eval["x"]))
    expected = y.max() + 1 if y.dtype == np.int64 else 1
    assert info["num_outputs"] == expected


@pytest.mark.parametrize("name", ["random", "sequential", "sorted"])
def test_sampler_options_have_the_arguments_of_their_class(name):
    options = read("sampler", name)
    module, _, kind = options.pop("_target_").rpartition(".")
    assert module == "expkit.data.sampler"
    assert options.keys() == inspect.signature(getattr(sampler, kind)).parameters.keys()
