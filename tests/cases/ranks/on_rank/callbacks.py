"""Theme 18 on ranks: callbacks, and options of the trainer, mean the same as on one device."""

from __future__ import annotations

import numpy as np

from expkit.callbacks import ExponentialMovingAverage, RunOnBest
from expkit.data import Data
from expkit.metrics import Accuracy, MetricSet
from expkit.optimizers import SGD
from tests.cases.parts import Consumed, Events, Scripted, samples, weights
from tests.cases.ranks.on_rank.parts import digest, driver_of, outcome, store_of, trainer_of
from tests.cases.test_callbacks import make_callback


def sets(n=40, held_out=8):
    """Data whose steps do not depend on the number of ranks."""
    return Data(samples(n), samples(held_out, 1), global_batch_size=8)


def alone_or_together(framework, alone, option):
    """Train two epochs with one callback; what a recorder beside it sees."""
    found = []
    arguments = {"function": lambda context, metrics: found.append(context.progress.step)}
    events = Events()
    trainer = trainer_of(
        framework,
        alone,
        data=sets(),
        callbacks={
            option: make_callback(option, **(arguments if option == "on_best" else {})),
            "events": events,
        },
        monitor="-loss",
        n_epochs=2,
    )
    result = trainer.fit()
    records = [[split, step, list(numbers)] for split, step, _, numbers in trainer._logger.rows]
    return {
        "ended": [result.status, result.steps, result.skipped_steps],
        "events": events.calls,
        "records": records,
        "found": found,
        "weights": digest(trainer),
    }


def moving_average(framework, root, alone):
    """What is evaluated, kept and left is the average; also where the best is taken back."""
    rank = driver_of(framework, alone).rank
    found = []
    for values in ([0.1, 0.2, 0.3], [0.1, 0.9, 0.3]):
        trainer = trainer_of(
            framework,
            alone,
            data=sets(),
            optimizer=SGD(lr=0.5),
            callbacks=[ExponentialMovingAverage(decay=0.8)],
            metrics=Scripted(*values),
            monitor="accuracy",
            checkpoint=None if alone else store_of(f"{root}/{values[1]}", rank),
        )
        trainer.fit()
        found.append(weights(trainer))
        loss = trainer.result.metrics["loss"]
    return [each.tolist() for each in found], loss


def new_bests(framework, run_on):
    """At which steps the user's function was called on this rank."""
    called = []

    def function(context, metrics):
        if run_on == "all":  # a collective in it is no trap then
            context.driver.barrier()
        called.append([context.progress.step, metrics["accuracy"]])

    trainer_of(
        framework,
        data=sets(),
        metrics=Scripted(0.1, 0.5, 0.4),
        monitor="accuracy",
        callbacks=[RunOnBest(function, run_on=run_on)],
    ).fit()
    return called


def with_options(framework, alone, **options):
    """Records, samples and result of a run with options of the trainer."""
    consumed = Consumed()
    trainer = trainer_of(
        framework,
        alone,
        data=Data(
            samples(44),
            samples(30, 1),
            global_batch_size=8,
            eval_batch_size=8 // (1 if alone else 2),
        ),
        metrics=MetricSet({"accuracy": Accuracy()}),
        monitor="-loss",
        n_epochs=2,
        log_every=1,
        callbacks=[consumed],
        **options,
    )
    trainer.fit()
    return {
        "result": outcome(trainer) | {"seconds": 0},
        "weights": weights(trainer).tolist(),
        "train": [[step, loss] for step, loss in trainer._logger.of("train", "loss").items()],
        "eval": [[step, loss] for step, loss in trainer._logger.of("eval", "loss").items()],
        "samples": sorted(
            np.unique([index for _, _, seen in consumed.rows for index in seen]).tolist()
        ),
    }
