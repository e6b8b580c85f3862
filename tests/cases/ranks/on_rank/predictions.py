"""Predictions of ranks: each sample once, in order, the same on any number of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from expkit.core.predictor import Predictor
from expkit.data import Collate, Data, ItemDataset, Pad
from expkit.losses import CrossEntropy
from expkit.run.predictions import write_predictions
from tests.cases.parts import make_mlp, samples
from tests.cases.ranks.on_rank.parts import TIMEOUT_S, driver_of, logged, make_echo


def predicted(directory, driver, model, data, loss):
    """What this rank's call returns."""
    predictor = Predictor(driver=driver, data=data, model=model, loss=loss, outputs=["output"])
    with logged() as lines:
        counts = write_predictions(predictor, Path(directory))
    assert lines == []
    return counts


def place_of(framework, root, alone):
    """The directory of all ranks, or one that each rank has for itself."""
    place = Path(root) / f"alone-{driver_of(framework).rank}" if alone else Path(root)
    place.mkdir(exist_ok=True)
    return place


def points(framework, root, sizes, batch_size, alone=False):
    """Sets of several sizes by name."""
    sets = {
        f"n{n}": {"x": samples(n)["x"], "id": [f"é{index}" for index in range(n)]} for n in sizes
    }
    place, driver = place_of(framework, root, alone), driver_of(framework, alone)
    data = Data(None, sets, eval_batch_size=batch_size)
    return predicted(place, driver, make_mlp(framework, hidden=(64, 64)), data, CrossEntropy())


def sequences(framework, root, lengths, alone=False):
    """Sequences that each batch pads to its own longest, of which only the tokens count."""
    rng = np.random.default_rng(0)
    items = [
        {"scores": rng.standard_normal((n, 3)).astype(np.float32), "y": np.arange(n) % 3}
        for n in lengths
    ]
    collate = Collate(pad={"scores": Pad(), "y": Pad(value=-1)})
    data = Data(None, ItemDataset(items, collate), eval_batch_size=2)
    place, driver = place_of(framework, root, alone), driver_of(framework, alone)
    return predicted(place, driver, make_echo(framework), data, CrossEntropy(ignore_index=-1))


def tags(framework, root, lengths, alone=False):
    """Tokens without targets, for a model that decides on their tags itself."""
    module = importlib.import_module(f"expkit.models.{framework}")
    model = module.LstmTagger(vocab_size=30, out_features=5, embedding_dim=8, hidden=8)
    model.initialize(0)
    items = [{"x": np.arange(n) % 29 + 1} for n in lengths]
    collate = Collate(pad={"x": Pad()})
    data = Data(None, ItemDataset(items, collate), eval_batch_size=2)
    place, driver = place_of(framework, root, alone), driver_of(framework, alone)
    return predicted(place, driver, model, data, None)


class Endless:
    """Samples without a number, one after the other."""

    def __init__(self, n):
        self._n = n

    def __iter__(self):
        yield from ({"x": x} for x in samples(self._n)["x"])


def stream(framework, root, n, alone=False):
    data = Data(None, Endless(n), eval_batch_size=3)
    place, driver = place_of(framework, root, alone), driver_of(framework, alone)
    return predicted(place, driver, make_mlp(framework), data, CrossEntropy())


def shards(framework, root, n, batch_size):
    """Each rank holds a part of the model, so that all must predict equally many batches."""
    module = importlib.import_module(f"expkit.drivers.{framework}")
    driver = module.TorchFSDPDriver(device="cpu", timeout_s=TIMEOUT_S)
    data = Data(None, {"x": samples(n)["x"]}, eval_batch_size=batch_size)
    return predicted(root, driver, make_mlp(framework), data, CrossEntropy())
