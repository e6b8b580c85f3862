"""Themes 4 and 13 on ranks: streams, a user's own loader and a user's own sampler."""

from __future__ import annotations

import importlib

import numpy as np

from expkit.data import Data, OwnLoader
from expkit.optimizers import SGD
from tests.cases.parts import Consumed, assert_same, samples, weights
from tests.cases.ranks.on_rank.evaluation import Count
from tests.cases.ranks.on_rank.parts import (
    Interrupt,
    digest,
    error_of,
    go_on,
    interrupted,
    store_of,
    trainer_of,
)
from tests.cases.test_streams import MAKERS, Batches, Resumable, Sampler, Stream, rows

N = 22


class Seen(Consumed):
    """The samples of weight above 0 by step."""

    def batch_start(self, context, batch, indices):
        index = batch.fields["index"]
        kept = index if batch.weights is None else index[batch.weights > 0]
        self.rows.append((context.progress.step + 1, kept.tolist()))


def loader_of(name, rank, world_size):
    """A framework's loader of the samples, shuffled or with the framework's distributed sampler."""
    kind, _, is_distributed = name.partition(", ")
    if kind == "paddle":
        io = importlib.import_module("paddle.io")
        data = _paddle_set(io)
        if is_distributed:
            sampler = io.DistributedBatchSampler(data, 4, world_size, rank, shuffle=True)
            return io.DataLoader(data, batch_sampler=sampler)
        return io.DataLoader(data, batch_size=4, shuffle=True)
    utils = importlib.import_module("torch.utils.data")
    sampler = None
    if is_distributed:
        sampler = utils.DistributedSampler(range(N), world_size, rank, shuffle=True)
    made = {"batch_size": 4, "sampler": sampler, "shuffle": sampler is None}
    return utils.DataLoader(rows(N), **made)


def _paddle_set(io):
    class Rows(io.Dataset):
        def __init__(self):
            self.rows = rows(N)

        def __len__(self):
            return N

        def __getitem__(self, index):
            return self.rows[index]

    return Rows()


def data_of(name, framework, rank, world_size):
    """Data whose windows are the same samples on any number of ranks."""
    sets = {
        "stream": lambda: Data(Stream(N), global_batch_size=5),
        "resumable stream": lambda: Data(Resumable(N), global_batch_size=5),
        "loader": MAKERS["loader"],
        "batch sampler": lambda: Data(rows(N), sampler=Sampler()),
    }
    if name in sets:
        return sets[name]()
    own = name.replace("framework", framework)
    return Data(loader_of(own, rank, world_size))


def trainer_on(framework, name, alone=False, root=None, callbacks=(), **options):
    """A trainer on such data; with plain SGD, so that ranks differ by roundings alone."""
    made = {"n_epochs": 2, "optimizer": SGD(lr=0.1), **options}
    driver = trainer_of(framework, alone, n=4, n_epochs=1).driver
    rank, world_size = driver.rank, driver.world_size
    return trainer_of(
        framework,
        alone,
        data=data_of(name, framework, rank, world_size),
        callbacks=callbacks,
        checkpoint=store_of(root, rank) if root else None,
        **made,
    )


def shared_out(framework, name, accumulate=1):
    """What is trained on all ranks, against one alone."""
    seen, seen_alone = Seen(), Seen()
    trainer = trainer_on(framework, name, callbacks=[seen], accumulate=accumulate)
    trainer.fit()
    alone = trainer_on(framework, name, True, callbacks=[seen_alone], accumulate=accumulate)
    alone.fit()
    group = trainer.driver.group
    parts = [row for part in group.all_gather(seen.rows) for row in part]
    steps = [by_step(rows, trainer.progress.step) for rows in (parts, seen_alone.rows)]
    return {
        "steps": steps[0],
        "alone": steps[1],
        "samples": (trainer.progress.samples, alone.progress.samples),
        "distance": float(np.abs(weights(trainer) - weights(alone)).max()),
        "weights": digest(trainer),
    }


def by_step(rows, number):
    """All samples of each step, sorted."""
    return [
        sorted(index for step, kept in rows if step == each for index in kept)
        for each in range(1, number + 1)
    ]


def resumed(framework, name, root, step):
    """The undisturbed run against one that was stopped in an epoch."""
    options = {"mlp": {"dropout": 0.5}}
    straight = trainer_on(framework, name, **options)
    straight.fit()
    signal = Interrupt(step)
    first = trainer_on(framework, name, root=root, callbacks=[signal], **options)
    interrupted(first, signal, step)
    second = go_on(trainer_on(framework, name, root=root, **options), root)
    second.fit()
    own = [each.state() | {"callbacks": {}} for each in (straight, second)]
    assert_same(*own)
    return straight.progress.step, digest(straight), digest(second)


def evaluated(framework, n, kind):
    """How many samples are counted in an evaluation of a stream or of ready batches."""
    held_out = {
        "stream": lambda: Stream(n),
        "loader": lambda: OwnLoader(Batches(n)),
    }[kind]()
    data = Data(samples(4), held_out)
    trainer = trainer_of(framework, data=data, metrics=Count(), n_epochs=1)
    trainer.fit()
    metrics = trainer.result.metrics
    return metrics["count"], metrics["distinct"]


def weighted(framework):
    """Case 40: which samples each rank trains, of those with a weight."""
    module = importlib.import_module("torch.utils.data" if framework == "torch" else "paddle.io")
    sampler = module.WeightedRandomSampler([0.0, 0.0, 1.0, 1.0], 100)
    seen = Seen()
    data = Data(samples(4), batch_size=5, sampler=sampler)
    trainer = trainer_of(framework, data=data, callbacks=[seen], n_epochs=1)
    trainer.fit()
    own = [index for _, kept in seen.rows for index in kept]
    return [(len(part), sorted(set(part))) for part in trainer.driver.group.all_gather(own)]


def distributed_in_evaluation(framework):
    """A distributed sampler in an evaluation, or of a sampler, is refused on all ranks."""
    driver = trainer_of(framework, n=4, n_epochs=1).driver
    loader = loader_of(f"{framework}, distributed", driver.rank, driver.world_size)
    parts = {"n_epochs": 1}
    first = error_of(lambda: trainer_of(framework, data=Data(samples(4), loader), **parts))
    sampler = loader.batch_sampler
    data = Data(samples(N), sampler=sampler)
    return first, error_of(lambda: trainer_of(framework, data=data, **parts))
