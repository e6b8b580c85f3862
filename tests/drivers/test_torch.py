from __future__ import annotations

import numpy as np
import pytest
import torch

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.errors import DataError
from expkit.drivers.torch import TorchDriver
from expkit.losses import CrossEntropy
from expkit.models.torch import Mlp
from expkit.optimizers import SGD, Adam
from expkit.testing import DriverSuite
from expkit.testing.steps import CLASSES, FEATURES, batch_of, flat, gradient, step
from tests.drivers.perceptron import perceptron


class TestTorchDriver(DriverSuite):
    def make_driver(self, **options):
        return TorchDriver(**{"device": "cpu", **options})

    def make_model(self, **options):
        return perceptron(Mlp, **options)

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_low_precision_learns_nearly_the_same(self, precision):
        results = []
        for each in ("fp32", precision):
            driver = self.make_driver(precision=each)
            driver.setup(0)
            model = self.make_model()
            model.initialize(0)
            driver.prepare(model, SGD(lr=0.1), CrossEntropy())
            for number in range(5):
                step(driver, [batch_of(range(number, number + 8))], clip_norm=10.0)
            results.append(flat(driver.model_state()))
        assert not np.array_equal(*results)
        np.testing.assert_allclose(*results, atol=0.02)

    def test_an_overflow_leaves_out_the_update_of_all_optimizers(self):
        driver = self.make_driver(precision="fp16", loss_scale=1024.0)
        driver.setup(0)
        model = self.make_model()
        model.initialize(0)
        paths = sorted({path.rsplit(".", 1)[0] for path in dict(model.named_parameters())})
        optimizers = {
            name: SGD(lr=0.1, params=f"{path}.*") for name, path in zip("ab", paths, strict=True)
        }
        driver.prepare(model, optimizers, CrossEntropy())
        before = driver.model_state()
        batch = batch_of(range(8))
        driver.backward(driver.loss(driver.forward(batch, True), batch), 1 / 8)
        next(iter(model.parameters())).grad[0] = float("inf")
        assert driver.optimizer_step([1.0, 1.0]) is False
        np.testing.assert_array_equal(flat(before), flat(driver.model_state()))
        assert driver.state()["scaler"]["value"] == 512.0
        assert step(driver, [batch], factors=[1.0, 1.0])[2] is True
        assert not np.array_equal(flat(before), flat(driver.model_state()))

    def test_the_loss_scale_survives_a_restart(self):
        driver = self.make_driver(precision="fp16", loss_scale=65536.0, loss_scale_growth_every=2)
        model = self.make_model()
        driver.prepare(model, SGD(lr=1e-4), CrossEntropy())
        for _ in range(4):
            step(driver, [batch_of(range(8))])
        state = driver.state()
        assert state["scaler"]["value"] == 262144.0
        other = self.make_driver(precision="fp16", loss_scale_growth_every=2)
        other.prepare(self.make_model(), SGD(lr=1e-4), CrossEntropy())
        other.load_state(state)
        assert other.state()["scaler"] == state["scaler"]


class Steps(torch.nn.Module):
    """A model with steps of its own, whose loss is a mean."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(FEATURES, CLASSES)

    def train_step(self, batch):
        return {"loss": torch.nn.functional.cross_entropy(self.layer(batch["x"]), batch["y"])}

    def evaluate_step(self, batch):
        return {"output": self.layer(batch["x"])}


def test_a_scalar_loss_counts_with_its_samples():
    def driver():
        made = TorchDriver(device="cpu")
        torch.manual_seed(0)
        made.prepare(Steps(), SGD(lr=1.0), None)
        return made

    whole, _ = gradient(driver(), [batch_of(range(9))])
    parts, _ = gradient(driver(), [batch_of(range(6)), batch_of(range(6, 9))])
    np.testing.assert_allclose(flat(parts), flat(whole), rtol=1e-5, atol=1e-7)


def test_a_user_function_may_be_the_loss():
    driver = TorchDriver(device="cpu")
    driver.prepare(
        torch.nn.Linear(FEATURES, CLASSES),
        SGD(lr=1.0),
        lambda outputs, batch: torch.nn.functional.cross_entropy(
            outputs["output"], batch["y"], reduction="none"
        ),
        Binding(inputs={"x": "input"}),
    )
    terms, _, _ = step(driver, [batch_of(range(4))])
    assert driver.read_losses(terms)[0, 1] == 4


def test_a_missing_loss_is_told_with_what_there_is():
    driver = TorchDriver(device="cpu")
    driver.prepare(
        torch.nn.Linear(FEATURES, CLASSES), SGD(lr=1.0), None, Binding(inputs={"x": "input"})
    )
    batch = batch_of(range(4))
    outputs = driver.forward(batch, True)
    with pytest.raises(DataError, match=r"no 'loss'.*output"):
        driver.loss(outputs, batch)


def test_nested_fields_reach_the_device_and_others_are_left_alone():
    seen = {}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, a, m):
            seen.update(a=a, m=m)
            return self.w * a["img"]

    driver = TorchDriver(device="cpu")
    driver.prepare(Model(), Adam(), lambda outputs, batch: outputs["output"].sum(1))
    fields = {"a": {"img": np.ones((2, 3), np.float32), "id": ["x", "y"]}, "m": None}
    batch = Batch(fields, np.arange(2))
    driver.loss(driver.forward(batch, True), batch)
    assert isinstance(seen["a"]["img"], torch.Tensor)
    assert seen["a"]["id"] == ["x", "y"]
    assert seen["m"] is None
