"""Themes 3, 4 and 18 on ranks: windows, clipping, schedules, samples, parameters."""

from __future__ import annotations

import importlib

import numpy as np

from expkit.core.batch import Window
from expkit.core.events import Callback
from expkit.data import Data
from expkit.optimizers import SGD, Adam
from expkit.schedules import Step
from tests.cases.parts import Consumed, Probe, gradients, make_mlp, samples, weights
from tests.cases.ranks.on_rank.parts import (
    OwnWindows,
    batch_of,
    constant,
    digest,
    error_of,
    freeze,
    in_order,
    logged,
    outcome,
    trainer_of,
)


def short_last_window(framework, n, n_epochs):
    data = in_order(gradients(*[1.0] * n), batch_size=1)
    trainer = constant(framework, data, accumulate=2, n_epochs=n_epochs)
    trainer.fit()
    return trainer.progress.step, weights(trainer).tolist()


def unequal_ranks(framework, sync):
    """Rank 0 has the micro-batches 2 and 4, rank 1 has 6 and 8."""
    data = in_order(gradients(2.0, 6.0, 4.0, 8.0), batch_size=1)
    options = {"driver_options": {"gradient_sync": sync}, "optimizer": SGD(lr=1.0)}
    trainer = constant(framework, data, accumulate=2, **options)
    trainer.fit()
    return weights(trainer).tolist()


def unequal_batches(framework, sync, cut):
    """Rank 0 has 3 samples with the gradient 1, in ``cut`` micro-batches; rank 1 has 1 with 5."""

    class ByRank(OwnWindows):
        def train_loader(self, *, rank, **options):
            parts = [[1.0, 1.0, 1.0]] if cut == 1 else [[1.0, 1.0], [1.0]]
            parts = parts if rank == 0 else [[5.0]]
            return OwnWindows(Window([batch_of(*part) for part in parts], 4.0))

    trainer = constant(
        framework,
        ByRank(),
        driver_options={"gradient_sync": sync},
        optimizer=SGD(lr=1.0),
        log_every=1,
    )
    trainer.fit()
    return weights(trainer).tolist(), trainer._logger.of("train", "loss")[1]


def clipping(framework, sync):
    """The micro-batches of both ranks together have the mean (6, 0.8)."""
    rows = gradients([24.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 3.2])
    options = {"driver_options": {"gradient_sync": sync}, "optimizer": SGD(lr=1.0)}
    trainer = constant(
        framework, in_order(rows, batch_size=1), 2, accumulate=2, clip_norm=1.0, **options
    )
    trainer.fit()
    return (-weights(trainer)).tolist()


def schedule(framework):
    rates = {}
    for alone in (True, False):
        found = rates[str(alone)] = []
        probe = Probe(
            {
                step: lambda c, found=found: found.append(c.driver.learning_rates()["lr"])
                for step in range(1, 9)
            }
        )
        data = in_order(gradients(*[0.0] * 16), global_batch_size=2)
        constant(
            framework,
            data,
            alone=alone,
            optimizer=SGD(lr=1.0),
            schedule=Step(every=1, gamma=0.5),
            callbacks=[probe],
        ).fit()
    assert rates["True"] == rates["False"]
    return rates["False"]


def overflow(framework, sync):
    """An infinite gradient on rank 1, in the first micro-batch of the second step."""
    rates = []

    class Overflow(Callback):
        done = False

        def backward_end(self, context, loss):
            if context.progress.step == 1 and not self.done and context.driver.rank == 1:
                self.done = True
                next(iter(context.driver.unwrap().parameters())).grad[0] = float("inf")

        def step_end(self, context):
            rates.append(context.driver.learning_rates()["lr"])

    with logged() as lines:
        trainer = trainer_of(
            framework,
            n=64,
            accumulate=2,
            n_epochs=1,
            driver_options={"precision": "fp16", "gradient_sync": sync},
            optimizer=SGD(lr=1.0),
            schedule=Step(every=1, gamma=0.5),
            callbacks=[Overflow()],
        )
        result = trainer.fit()
    scale = trainer.driver.state()["scaler"]["value"]
    return result.steps, result.skipped_steps, rates, scale, lines, digest(trainer)


def two_layers(framework):
    """A model that uses layer ``a`` or ``b``, as the first sample of a micro-batch says."""
    module = importlib.import_module(framework)
    base = module.nn.Module if framework == "torch" else module.nn.Layer

    class TwoLayers(base):
        def __init__(self):
            super().__init__()
            self.a = module.nn.Linear(6, 3)
            self.b = module.nn.Linear(6, 3)

        def forward(self, x, which):
            return self.a(x) if int(which[0]) == 0 else self.b(x)

    model = TwoLayers()
    rng = np.random.default_rng(0)
    for _, parameter in model.named_parameters():
        value = rng.standard_normal(tuple(parameter.shape)).astype(np.float32)
        if framework == "torch":
            parameter.data = module.from_numpy(value)
        else:
            parameter.set_value(value)
    return model


def early_layer(framework, sync):
    """Both ranks use ``a`` in the first micro-batch of a window and ``b`` in the second."""
    found = []
    for alone in (True, False):
        options = {"gradient_sync": sync, "find_unused_parameters": True}
        data = samples(24) | {"which": np.tile([0, 0, 1, 1], 6)}
        trainer = trainer_of(
            framework,
            alone,
            driver_options={} if alone else options,
            model=two_layers(framework),
            data=in_order(data, batch_size=1),
            accumulate=4 if alone else 2,
            optimizer=SGD(lr=0.1),
            n_epochs=1,
        )
        trainer.fit()
        found.append(weights(trainer))
    return digest(trainer), float(np.abs(found[0] - found[1]).max())


# -- samples ---------------------------------------------------------------------------------------


def orders(framework, **options):
    """The samples of each of three epochs."""
    consumed = Consumed()
    data = Data(samples(8), **{"batch_size": 1, **options})
    trainer_of(framework, data=data, callbacks=[consumed], n_epochs=3).fit()
    return [consumed.of_epoch(epoch) for epoch in range(3)]


def orders_alone(framework):
    consumed = Consumed()
    data = Data(samples(8), batch_size=2)
    trainer_of(framework, True, data=data, callbacks=[consumed], n_epochs=3).fit()
    return [consumed.of_epoch(epoch) for epoch in range(3)]


def few_samples(framework, drop_last):
    """Three samples in batches of 8."""
    data = Data(samples(3), batch_size=8, drop_last=drop_last)
    updates = []

    def train():
        trainer = trainer_of(framework, data=data, n_epochs=2)
        before = digest(trainer)
        trainer.fit()
        updates.extend([trainer.progress.step, digest(trainer) != before])

    return error_of(train), updates


def fewer_samples_than_ranks(framework):
    """Three samples in batches of 1, trained and evaluated; what each rank saw that counts."""
    seen = []

    class Seen(Callback):
        def batch_start(self, context, batch, indices):
            counts = np.ones(len(indices)) if batch.weights is None else batch.weights
            seen.extend(indices[counts > 0].tolist())

    data = in_order(samples(3), eval=samples(3, 1), batch_size=1)
    trainer = trainer_of(framework, data=data, n_epochs=1, callbacks=[Seen()])
    trainer.fit()
    return seen, outcome(trainer) | {"seconds": 0}


# -- parameters ------------------------------------------------------------------------------------


def rules_by_name(framework, alone, sync=None):
    """Decay everything but biases, freeze the first layer; no gradient moves anything.

    Returns:
        What became of the value 1 of each parameter, and the paths of Adam's state on rank 0.
    """
    values = {}
    for optimizer in (SGD(lr=1.0, weight_decay=0.1), Adam(lr=1.0, weight_decay=0.0)):
        spec = type(optimizer)(
            lr=optimizer.lr,
            weight_decay=optimizer.weight_decay,
            groups=[{"params": "*bias", "weight_decay": 0.0}],
        )
        model = make_mlp(framework)
        freeze(framework, model, "layers.linear_0.")
        trainer = trainer_of(
            framework,
            alone,
            driver_options={"gradient_sync": sync} if sync else {},
            model=model,
            loss=lambda outputs, batch: outputs["output"].sum() * 0.0,
            optimizer=spec,
            max_steps=1,
            save_every=None,
        )
        driver = trainer.driver
        driver.load_model_state({p: np.ones_like(a) for p, a in driver.model_state().items()})
        trainer.fit()
        if not values:
            values = {path: a.ravel()[0].item() for path, a in driver.model_state().items()}
    state = driver.state()["optimizer"].get("default", {})  # complete on rank 0
    paths = sorted({key.rpartition("/")[0] for key in state})
    return values, paths


def with_unused_head(framework):
    model = make_mlp(framework)
    module = importlib.import_module(framework)
    model.head = module.nn.Linear(2, 2)
    return model


def unused_head(framework, sync, find):
    options = {"gradient_sync": sync, "find_unused_parameters": find}
    trainer = trainer_of(
        framework, driver_options=options, model=with_unused_head(framework), n_epochs=1
    )
    before = trainer.driver.model_state()
    error = error_of(trainer.fit)
    after = trainer.driver.model_state()
    same = sorted(path for path in before if np.array_equal(before[path], after[path]))
    return error, trainer.progress.step, same


def frozen(framework, sync, when, find):
    """Freeze the first layer before the run, or after its first epoch."""
    model = make_mlp(framework)
    noted = {}

    class Freeze(Callback):
        def epoch_end(self, context):
            if context.progress.epoch == 1:
                if when == "later":
                    freeze(framework, context.driver.unwrap(), "layers.linear_0.")
                noted.update(context.driver.model_state())

    if when == "before":
        freeze(framework, model, "layers.linear_0.")
    trainer = trainer_of(
        framework,
        driver_options={"gradient_sync": sync, "find_unused_parameters": find},
        model=model,
        optimizer=Adam(lr=0.01, weight_decay=0.1),
        callbacks=[Freeze()],
    )
    before = trainer.driver.model_state()
    trainer.fit()
    after = trainer.driver.model_state()
    return {
        "moved at first": [p for p in before if not np.array_equal(before[p], noted[p])],
        "moved later": [p for p in before if not np.array_equal(noted[p], after[p])],
        "weights": digest(trainer),
    }
