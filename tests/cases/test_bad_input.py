"""What a user can get wrong in Python: an error with what is wrong and what mends it."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.core.binding import Binding
from expkit.core.errors import ConfigError, DataError, StepError
from expkit.data import Data
from expkit.losses import MeanSquaredError
from tests.cases.parts import FEATURES, Records, make_driver, make_mlp, make_trainer, samples


def with_data(framework="numpy", batch_size=4, **options):
    changes = options.pop("changes", {})
    data = Data(samples(options.pop("n", 20)) | changes, batch_size=batch_size)
    return make_trainer(framework, data=data, **options)


def test_an_empty_training_set_is_refused():
    with pytest.raises(DataError, match=r"training set is empty.*at least 1 sample"):
        make_trainer(n=0)


def test_an_empty_evaluation_set_is_refused():
    with pytest.raises(DataError, match="evaluation set is empty"):
        Data(samples(4), samples(0))


def test_fewer_samples_than_a_batch_and_drop_last_are_refused_with_both_numbers():
    """Case 44."""
    with pytest.raises(DataError, match=r"3 samples.*batch of 8.*data\.drop_last=false"):
        make_trainer(data=Data(samples(3), batch_size=8, drop_last=True))


def test_fewer_samples_than_a_batch_are_one_update_an_epoch(framework):
    """Case 44, the second part."""
    assert make_trainer(framework, n=3, batch_size=8, n_epochs=2).fit().steps == 2


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True])
def test_batches_of_no_sample_are_refused(batch_size):
    with pytest.raises(ConfigError, match=r"data\.batch_size: is "):
        Data(samples(4), batch_size=batch_size)


def test_batch_normalisation_of_one_sample_names_it_and_the_way_out():
    pytest.importorskip("torch")
    trainer = make_trainer("torch", n=9, mlp={"norm": "batch"})
    with pytest.raises(StepError, match=r"step 3 on samples \[\d\].*data\.drop_last=true"):
        trainer.fit()
    whole = Data(samples(9), batch_size=4, drop_last=True)
    assert make_trainer("torch", data=whole, mlp={"norm": "batch"}).fit().steps == 6


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_found_before_training(framework, label):
    y = samples(20)["y"]
    y[13] = label
    match = rf"training set.*label {label} at position 13; allowed: 0 to 2"
    with pytest.raises(DataError, match=match):
        with_data(framework, changes={"y": y})


def test_a_label_out_of_range_of_the_evaluation_set_is_found_before_training(framework):
    held_out = samples(8)
    held_out["y"][5] = 7
    data = Data(samples(20), {"dev": held_out}, batch_size=4)
    with pytest.raises(DataError, match=r"evaluation set dev.*label 7 at position 5"):
        make_trainer(framework, data=data)


def test_labels_that_are_no_integers_are_found_before_training(framework):
    labels = samples(20)["y"].astype(np.float32)
    with pytest.raises(DataError, match=r"field 'y' holds class labels of type float32.*loss=mse"):
        with_data(framework, changes={"y": labels})


def test_targets_that_are_not_finite_are_found_before_training(framework):
    y = np.zeros(20, np.float32)
    y[4] = np.nan
    with pytest.raises(DataError, match=r"field 'y' holds nan at position 4"):
        with_data(framework, changes={"y": y}, loss=MeanSquaredError(), mlp={"out_features": 1})


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_inputs_of_a_wrong_type_are_found_before_training_with_the_types_of_the_fields(framework):
    pytest.importorskip(framework)
    x = samples(20)["x"].astype(np.float64)
    with pytest.raises(StepError, match=r"first look at the model.*x float64, y int64"):
        with_data(framework, changes={"x": x})


def test_inputs_of_a_wrong_shape_are_found_before_training(framework):
    x = np.zeros((20, FEATURES + 1), np.float32)
    with pytest.raises(StepError, match=r"first look at the model.*samples \[0, 1\]"):
        with_data(framework, changes={"x": x})


def test_a_target_that_is_not_there_is_told_with_what_is():
    data = samples(20)
    data["label"] = data.pop("y")
    with pytest.raises(ConfigError, match=r"loss\.target.*no field 'y'.*x, index, label"):
        make_trainer(data=Data(data, batch_size=4), max_steps=1).fit()


# -- models that return something else -----------------------------------------------------------


def returning(framework, make_output):
    """A model of a user's own around one linear layer."""
    if framework == "torch":
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(FEATURES, 3)

            def forward(self, x):
                return make_output(self.layer(x))
    else:
        import paddle

        class Model(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.layer = paddle.nn.Linear(FEATURES, 3)

            def forward(self, x):
                return make_output(self.layer(x))

    return Model()


@pytest.fixture(params=["torch", "paddle"])
def tensors(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize("output", [lambda o: (o, o), lambda o: [o], lambda o: None])
def test_a_model_that_returns_a_tuple_or_nothing_is_told_what_is_allowed(tensors, output):
    with pytest.raises(
        DataError, match=r"Model returned (tuple|list|NoneType); allowed: one tensor"
    ):
        make_trainer(tensors, model=returning(tensors, output))


def test_a_missing_loss_is_told_with_the_outputs_that_are_there(tensors):
    model = returning(tensors, lambda o: {"logits": o, "hidden": o})
    trainer = make_trainer(tensors, model=model, loss=None)
    with pytest.raises(DataError, match=r"no 'loss'.*logits, hidden.*loss=cross_entropy"):
        trainer.fit()


def test_an_output_of_another_name_is_told_with_those_that_are_there(tensors):
    model = returning(tensors, lambda o: {"logits": o})
    with pytest.raises(ConfigError, match=r"loss\.output.*'output'.*logits.*loss\.output=logits"):
        make_trainer(tensors, model=model, max_steps=1).fit()
    renamed = Binding(outputs={"logits": "output"})
    assert make_trainer(tensors, model=model, binding=renamed, max_steps=1).fit().steps == 1


def test_a_model_may_return_its_own_loss(tensors):
    model = returning(tensors, lambda o: {"loss": (o**2).mean(-1), "output": o})
    trainer = make_trainer(tensors, model=model, loss=None, log_every=1, eval_on=4)
    trainer.fit()
    losses = trainer._logger.of("train", "loss")
    assert losses[15] < losses[1]


def test_a_model_of_another_framework_is_refused(framework):
    with pytest.raises(ConfigError, match=f"model: is .*driver={framework} needs"):
        make_trainer(framework, model=object())


def test_a_driver_takes_a_second_model(framework):
    driver = make_driver(framework)
    for seed in (0, 1):
        trainer = make_trainer(
            framework, driver=driver, model=make_mlp(framework, seed), logger=Records(), n_epochs=1
        )
        assert trainer.fit().steps == 5
