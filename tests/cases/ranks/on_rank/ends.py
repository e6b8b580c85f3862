"""Themes 7, 8 and 14 on ranks: what one rank asks for or meets, all do together."""

from __future__ import annotations

import time

import numpy as np

from expkit.callbacks.early_stop import EarlyStop
from expkit.callbacks.nan_guard import NanGuard
from expkit.checkpoint import CheckpointStore
from expkit.core.events import Callback
from expkit.data import Data
from tests.cases.parts import Probe, Scripted, fail, samples, stop
from tests.cases.ranks.on_rank.parts import (
    Act,
    digest,
    driver_of,
    error_of,
    in_order,
    logged,
    outcome,
    steps_kept,
    store_of,
    trainer_of,
)

REQUESTS = {
    "stop": stop,
    "save": lambda context: context.request_save(),
    "evaluate": lambda context: context.request_eval(),
}


def asked_on_one_rank(framework, root, request, event, step, rank, save_every=None, **options):
    """Ask for something on one rank alone; 5 steps an epoch, 3 epochs.

    Returns:
        The result, when it was evaluated, and which checkpoints were kept.
    """
    trainer = trainer_of(
        framework,
        n=40,
        eval_on=6,
        callbacks=[Act(event, step, rank, REQUESTS[request])],
        checkpoint=store_of(root, _rank(framework), keep_last=None),
        save_every=save_every,
        **options,
    )
    trainer.fit()
    trainer.driver.barrier()
    return outcome(trainer), trainer._logger.steps("eval"), steps_kept(root)


def _rank(framework):
    return driver_of(framework).rank


def interrupted_rank(framework, root, rank):
    """A stop signal comes to one rank in its fourth step."""
    trainer = None

    def interrupt(context):
        trainer.interrupt("SIGTERM")

    trainer = trainer_of(
        framework,
        n=40,
        eval_on=6,
        callbacks=[Act("batch_start", 4, rank, interrupt)],
        checkpoint=store_of(root, _rank(framework)),
    )
    trainer.fit()
    trainer.driver.barrier()
    return outcome(trainer), steps_kept(root)


def over_time(framework, max_time):
    """Each step takes longer on the last rank."""

    class Slow(Callback):
        def step_end(self, context):
            time.sleep(0.01 * (1 + context.driver.rank))

    trainer = trainer_of(framework, n_epochs=None, max_time=max_time, callbacks=[Slow()])
    trainer.fit()
    return outcome(trainer)


def early_stop(framework, alone):
    data = Data(samples(40), samples(6, 1), global_batch_size=8)
    trainer = trainer_of(
        framework,
        alone,
        data=data,
        metrics=Scripted(0.1, 0.5, 0.4, 0.3, 0.2),
        monitor="accuracy",
        eval_every=2,
        callbacks=[EarlyStop(patience=2)],
    )
    trainer.fit()
    result = outcome(trainer)
    return [result[key] for key in ("steps", "epochs", "status", "reason", "best_step")]


# -- the monitor -----------------------------------------------------------------------------------


def scripted(framework, root, values, name="accuracy", **options):
    """One step and one evaluation an epoch; what is best and what is kept."""
    with logged() as lines:
        trainer = trainer_of(
            framework,
            n=8,
            eval_on=2,
            n_epochs=len(values),
            metrics=Scripted(*values, name=name),
            checkpoint=store_of(root, _rank(framework), keep_best=2, keep_last=1),
            **options,
        )
        error = error_of(trainer.fit)
        trainer.driver.barrier()
    return {
        "error": error,
        "lines": lines,
        "best": trainer.result.best_step,
        "kept": steps_kept(root),
        "weights": digest(trainer),
    }


def metrics_of_checkpoints(framework, root):
    """An evaluation tells the step at which it was made; both fall on each tenth step."""
    steps = [0]
    probe = Probe({step: lambda c: steps.append(c.progress.step) for step in range(1, 31)})
    trainer = trainer_of(
        framework,
        n=8,
        eval_on=2,
        n_epochs=30,
        eval_every=10,
        save_every=10,
        metrics=Scripted(*[lambda: float(steps[-1])] * 3),
        checkpoint=store_of(root, _rank(framework), keep_last=None),
        callbacks=[EarlyStop(monitor="accuracy", patience=9), probe],
    )
    trainer.fit()
    trainer.driver.barrier()
    store = store_of(root, 0)
    paths = sorted((store._root).glob("step-*"))
    return [store.load(path)[1].metrics["accuracy"] for path in paths]


# -- losses that are not finite --------------------------------------------------------------------


def nan_on_one_rank(framework, root, guard):
    """40 steps of 4 samples, of which one of rank 1's in step 12 is NaN."""
    data = samples(160)
    data["x"][45] = np.nan
    trainer = trainer_of(
        framework,
        data=in_order(data, batch_size=2),
        checkpoint=store_of(root, _rank(framework), keep_last=3),
        n_epochs=1,
        save_every=5,
        callbacks=[NanGuard(guard)] if guard else [],
    )
    error = error_of(trainer.fit)
    trainer.driver.barrier()
    store = store_of(root, 0)
    finite = {}
    for step in steps_kept(root):
        state, info = store.load(store._root / f"step-{step:08d}")
        assert info.step == step
        finite[str(step)] = all(np.isfinite(array).all() for array in state["model"].values())
    result = trainer.result
    return {
        "error": error,
        "status": result.status,
        "counts": [result.steps, result.skipped_steps],
        "finite": finite,
        "last": CheckpointStore(store._root).last().step,
        "weights": digest(trainer),
    }


def error_on_all(framework):
    """What all ranks raise ends the run on all, and the group is still whole."""
    trainer = trainer_of(framework, callbacks=[Probe({2: fail(ValueError("no"))})])
    error = error_of(trainer.fit)
    return error, trainer.driver.all_gather(trainer.driver.rank)
