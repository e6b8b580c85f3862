"""Themes 1, 2, 6 and 17 on ranks: checkpoints, resumed runs, several runs in one process."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest import mock

import numpy as np

from expkit.core.evaluator import Evaluator
from expkit.data import Data
from expkit.losses import CrossEntropy
from expkit.optimizers import Adam
from expkit.schedules import Cosine
from tests.cases.parts import (
    Consumed,
    Probe,
    Scripted,
    assert_same,
    make_mlp,
    samples,
)
from tests.cases.ranks.on_rank.parts import (
    Interrupt,
    digest,
    driver_of,
    error_of,
    go_on,
    interrupted,
    outcome,
    store_of,
    trainer_of,
)


class Noisy:
    """Adds noise of every generator that a data set may use."""

    def __init__(self, framework, n):
        self.rows = samples(n)
        self.framework = framework

    def __len__(self):
        return len(self.rows["x"])

    def __getitem__(self, index):
        row = {name: column[index] for name, column in self.rows.items()}
        noise = random.random() + np.random.rand()
        if self.framework == "torch":
            import torch

            noise += torch.rand(1).item()
        else:
            import paddle

            noise += paddle.rand([1]).item()
        return row | {"x": row["x"] + np.float32(noise)}


def noisy_trainer(framework, sync, **options):
    data = Data(Noisy(framework, 40), samples(6, 1), batch_size=4)
    return trainer_of(
        framework,
        data=data,
        driver_options={"gradient_sync": sync},
        mlp={"dropout": 0.5},
        schedule=Cosine(),
        monitor="-loss",
        **options,
    )


def straight_and_resumed(framework, root, sync, step):
    """A run of 15 steps, and the same one stopped at ``step`` and resumed."""
    straight = noisy_trainer(framework, sync)
    straight.fit()
    rank = straight.driver.rank
    signal = Interrupt(step)
    first = noisy_trainer(framework, sync, checkpoint=store_of(root, rank), callbacks=[signal])
    interrupted(first, signal, step)
    second = go_on(noisy_trainer(framework, sync, checkpoint=store_of(root, rank)), root)
    second.fit()
    assert_same(straight.state(), second.state())
    return straight.progress.step, digest(straight), digest(second)


def written(framework, root):
    """What lies on the disk after a run, and which numbers the ranks' generators left."""
    rank = driver_of(framework).rank
    trainer = trainer_of(
        framework,
        n=40,
        n_epochs=1,
        mlp={"dropout": 0.5},
        checkpoint=store_of(root, rank),
    )
    trainer.fit()
    trainer.driver.barrier()
    directory = Path(root) / "by-0" / "step-00000005"
    files = sorted(path.name for path in directory.iterdir())
    listed = [
        entry["name"] for entry in json.loads((directory / "MANIFEST.json").read_text())["files"]
    ]
    parts = [(directory / name).read_bytes() for name in files if name.startswith("rank-")]
    return {
        "writers": sorted(path.name for path in Path(root).iterdir()),
        "files": files,
        "listed": sorted(listed),
        "generators": len(set(parts)),
    }


# -- other numbers of ranks ------------------------------------------------------------------------


def part_of_a_run(framework, root, alone=False, until=None, resume=False, **data):
    """Train 2 epochs of 36 samples, 12 in a step whatever the ranks, or a part of them.

    Returns:
        The steps of this part with the samples of this rank that count, and the result.
    """
    others_wait = alone and driver_of(framework).rank > 0
    rows = []
    if not others_wait:
        rows = _part(framework, root, alone, until, resume, data or {"global_batch_size": 12})
    driver_of(framework).barrier()
    return rows


def _part(framework, root, alone, until, resume, data):
    class Counted(Consumed):
        """Leaves out the repeats that fill up, whose weight is 0."""

        def batch_start(self, context, batch, indices):
            counts = np.ones(len(indices)) if batch.weights is None else batch.weights
            progress = context.progress
            self.rows.append([progress.epoch, progress.step + 1, indices[counts > 0].tolist()])

    counted, signal = Counted(), Interrupt(until)
    trainer = trainer_of(
        framework,
        alone,
        data=Data(samples(36), **data),
        n_epochs=2,
        callbacks=[counted, signal],
        checkpoint=store_of(root, driver_of(framework, alone).rank),
    )
    if resume:
        go_on(trainer, root)
    if until is None:
        trainer.fit()
    else:
        interrupted(trainer, signal, until)
    return counted.rows


def refused_part(framework, root):
    """Go on inside an epoch whose steps depend on the number of ranks."""
    return error_of(lambda: part_of_a_run(framework, root, resume=True, batch_size=6))


# -- the weights that stay -------------------------------------------------------------------------


def best_weights(framework, root, values):
    """A digest of the weights at each step, and of those that stay."""
    seen = {}

    def note(context):
        state = context.driver.model_state()
        seen[str(context.progress.step)] = state["layers.output.bias"].tolist()

    trainer = trainer_of(
        framework,
        n=8,
        eval_on=2,
        n_epochs=len(values),
        metrics=Scripted(*values),
        monitor="accuracy",
        checkpoint=store_of(root, driver_of(framework).rank) if root else None,
        callbacks=[Probe(dict.fromkeys(range(1, len(values) + 1), note))],
    )
    result = trainer.fit()
    left = trainer.driver.model_state()["layers.output.bias"].tolist()
    return result.best_step, left, seen, digest(trainer)


# -- several runs in one process -------------------------------------------------------------------


def interleaved_runs(framework, root):
    """Two jobs that are stopped and resumed in one process, with other models in between."""

    def make(job, **options):
        return trainer_of(
            framework,
            n=40,
            seed=job,
            optimizer=Adam(lr=0.01),
            mlp={"seed": job, "hidden": (8 + job,)},
            **options,
        )

    straight = []
    for job in (0, 1):
        trainer = make(job)
        trainer.fit()
        straight.append(digest(trainer))
    roots = [f"{root}/{job}" for job in (0, 1)]
    for job in (0, 1):
        signal = Interrupt(7)
        store = store_of(roots[job], driver_of(framework).rank)
        interrupted(make(job, checkpoint=store, callbacks=[signal]), signal, 7)
    metrics = Evaluator(
        driver=driver_of(framework),
        data=Data(None, samples(10)),
        model=make_mlp(framework),
        loss=CrossEntropy(),
    ).run()
    assert metrics["loss"] > 0
    resumed, paths = [], set()
    for job in (0, 1):
        second = go_on(make(job), roots[job])
        second.fit()
        resumed.append(digest(second))
        paths |= set(second.driver.state()["optimizer"].get("default", {}))
    return straight, resumed, sorted({path.rpartition("/")[0] for path in paths})


def repeated(framework):
    """Fit, evaluate, and another trainer with fit; how often the process was initialised then."""
    data = Data(samples(40), samples(10, 1), batch_size=4)
    calls = mock.Mock()
    driver_of(framework)  # joins, where nobody has
    with _initialisers(framework, calls):
        first = trainer_of(framework, data=data)
        first.fit()
        of_first = _settled(first)
        metrics = Evaluator(
            driver=driver_of(framework),
            data=data,
            model=make_mlp(framework),
            loss=CrossEntropy(),
        ).run()
        first.driver.shutdown()
        second = trainer_of(framework, data=data)
        second.fit()
    return calls.call_count, metrics["loss"], of_first, _settled(second)


def _settled(trainer):
    return outcome(trainer) | {"seconds": 0}


def _initialisers(framework, calls):
    if framework == "torch":
        import torch.distributed as dist

        return mock.patch.object(dist, "init_process_group", calls)
    import paddle.distributed as dist

    return mock.patch.object(dist, "init_parallel_env", calls)
