"""The data of an experiment: the sets, and how they are cut into batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, final

from expkit.core.batch import EvalLoader, TrainLoader
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import ArrayDataset, CollateFunction, Dataset
from expkit.data.loader import PlanLoader, ShardLoader
from expkit.data.opening import (
    AnySet,
    check_apart,
    check_effects,
    check_no_seed,
    check_own_sizes,
    open_evaluation_sets,
    open_training_set,
)
from expkit.data.own.batches import BatchLoader
from expkit.data.own.loader import OwnLoader
from expkit.data.own.sampler import OwnSampler, as_sampler
from expkit.data.own.stream import Stream
from expkit.data.plan import Plan, step_size
from expkit.data.reading import Reader
from expkit.data.sampler import Random, Sequential
from expkit.data.workers.pool import WorkerPool

log = logging.getLogger(__name__)

_BATCH_SIZE = 32


@final
class Data:
    """Training and evaluation sets with their loaders.

    Args:
        train: training set, anything that `as_dataset` takes, or a mapping name -> set for several
            (see `ConcatDataset`); samples without a length (see `Stream`), or a loader (see
            `OwnLoader`); None where nothing is trained.
        eval: evaluation set, or a mapping name -> set; None = no evaluation.
        batch_size: samples per process and micro-batch.
        global_batch_size: samples per optimizer step over all ranks, in place of ``batch_size``;
            then the world size changes nothing.
        eval_batch_size: samples per process and evaluation batch; None = the larger of 256 and
            ``batch_size``.
        drop_last: leave out the last training batch of an epoch where it is not whole.
        num_workers: processes that read ahead; 0 = the training process reads.
        prefetch: micro-batches that each worker is ahead.
        sampler: order of the training samples, also a sampler or batch sampler of torch's or
            Paddle's kind (see `OwnSampler`); None = `Random` with the run's seed.
        collate: makes a batch from a list of samples, for sets whose samples come one by one; None
            = `Collate`.

    Attributes:
        train: the training set, or None.
        eval: the evaluation sets by name; a single one has the name "".

    Raises:
        ConfigError: options that cannot work.
        DataError: an empty data set, or something that is none.
    """

    def __init__(
        self,
        train: Any,
        eval: Any = None,
        *,
        batch_size: int = _BATCH_SIZE,
        global_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        sampler: Any = None,
        collate: CollateFunction | None = None,
    ) -> None:
        problems = [
            *_at_least(1, "data.batch_size", batch_size, _BATCH_SIZE),
            *_at_least(1, "data.global_batch_size", global_batch_size, 32),
            *_at_least(1, "data.eval_batch_size", eval_batch_size, 256),
            *_at_least(0, "data.num_workers", num_workers, 2),
            *_at_least(1, "data.prefetch", prefetch, 2),
            *_given(
                {
                    "data.batch_size": (batch_size, _BATCH_SIZE),
                    "data.num_workers": (num_workers, 0),
                    "data.prefetch": (prefetch, 2),
                }
            ),
            *_collate(collate),
        ]
        if problems:
            raise ConfigError(problems)
        self._sampler = as_sampler(sampler)
        self.train = None if train is None else open_training_set(train, collate)
        self.eval = open_evaluation_sets(eval, collate)
        check_apart(self.train, self.eval)
        given = {
            "sampler": not isinstance(self._sampler, Random),
            "data.num_workers": num_workers > 0,
            "data.batch_size": batch_size != _BATCH_SIZE,
            "data.global_batch_size": global_batch_size is not None,
            "data.drop_last": drop_last,
            "data.eval_batch_size": eval_batch_size is not None,
        }
        self._given = [key for key in given if given[key]]
        check_effects(self.train, self.eval, self._given)
        self._batch_size = batch_size
        self._global_batch_size = global_batch_size
        self._eval_batch_size = eval_batch_size or max(256, batch_size)
        self._drop_last = drop_last
        sets = [each for each in self._sets() if not isinstance(each, Stream | OwnLoader)]
        self._pool = WorkerPool(sets, num_workers, prefetch) if num_workers else None

    def train_loader(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        seed: int = 0,
        limit_batches: int | None = None,
        overfit_batches: int = 0,
    ) -> TrainLoader:
        """The windows of this rank.

        Args:
            rank: number of this process.
            world_size: processes in all.
            accumulate: micro-batches per optimizer step.
            seed: the run's seed.
            limit_batches: end each epoch after this many batches; None = all.
            overfit_batches: where greater than 0, each epoch is this many batches from the
                beginning of the data set, in its order (a stream's or a loader's is that of its
                first epoch).
        """
        problems = [
            *_at_least(1, "trainer.accumulate", accumulate, 1),
            *_at_least(1, "trainer.limit_train_batches", limit_batches, 1),
            *_at_least(0, "trainer.overfit_batches", overfit_batches, 0),
        ]
        if problems:
            raise ConfigError(problems)
        train, limit = self._training_set(), _least(limit_batches, overfit_batches or None)
        steps: dict[str, Any] = {
            "rank": rank,
            "world_size": world_size,
            "accumulate": accumulate,
            "limit_batches": limit,
        }
        sizes: dict[str, Any] = {
            "batch_size": self._batch_size,
            "global_batch_size": self._global_batch_size,
            "drop_last": self._drop_last,
        }
        if isinstance(train, Stream | OwnLoader):
            check_no_seed(self._sampler, seed)
            steps |= {"seed": seed, "repeats": overfit_batches > 0}
            if isinstance(train, Stream):
                return train.train_loader(**steps, **sizes)
            return train.train_loader(**steps)
        reader = self._reader(train)
        sampler = Sequential() if overfit_batches else self._sampler
        size = step_size(self._batch_size, self._global_batch_size, accumulate, world_size)
        bound = sampler.bind(train, seed, size)
        if isinstance(bound, OwnSampler) and bound.is_batched:
            check_own_sizes(self._given)
            return BatchLoader(train, bound, **steps, seed=seed, reader=reader)
        plan = Plan(bound, **steps, **sizes)
        if self._pool and rank == 0 and isinstance(train, ArrayDataset) and train.is_in_memory:
            log.warning(
                "data.num_workers only costs time here: the training set lies in memory (try: "
                "data.num_workers=0)"
            )
        return PlanLoader(train, plan, seed, reader)

    def eval_loaders(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        limit_batches: int | None = None,
        overfit_batches: int = 0,
        in_step: bool = False,
        whole_batches: bool = False,
        seed: int = 0,
    ) -> dict[str, EvalLoader]:
        """The evaluation batches of this rank by the name of the set.

        Args:
            rank: number of this process.
            world_size: processes in all.
            limit_batches: end after this many batches of each set; None = all.
            overfit_batches: where greater than 0, evaluate on the training samples that
                `train_loader` is limited to.
            in_step: whether all ranks must get equally many batches; see `ShardLoader`.
            whole_batches: whether ranks share out batches and not samples; see `ShardLoader`.
            seed: the run's, of what is drawn when samples are read.
        """
        problems = [
            *_at_least(1, "trainer.limit_eval_batches", limit_batches, 1),
            *_at_least(0, "trainer.overfit_batches", overfit_batches, 0),
        ]
        if problems:
            raise ConfigError(problems)
        sets, batches, samples = self.eval, limit_batches, self._eval_batch_size * world_size
        if overfit_batches:
            train = self._training_set()
            sets, batches = dict.fromkeys(self.eval or [""], train), overfit_batches
            samples = self._global_batch_size or self._batch_size * world_size
        loaders: dict[str, EvalLoader] = {}
        limit = None if batches is None else batches * samples
        shares: dict[str, Any] = {"rank": rank, "world_size": world_size, "in_step": in_step}
        size = self._eval_batch_size
        for name, dataset in sets.items():
            own_seed = derive_seed(seed, "evaluation", name)
            # What has an order of its own is to have the one in which it is trained.
            pass_seed = seed if overfit_batches else own_seed
            if isinstance(dataset, OwnLoader):
                loader: EvalLoader = dataset.eval_loader(
                    **shares, seed=pass_seed, limit_batches=batches
                )
            elif isinstance(dataset, Stream):
                loader = dataset.eval_loader(
                    **shares, seed=pass_seed, batch_size=size, limit_samples=limit
                )
            else:
                loader = ShardLoader(
                    dataset,
                    **shares,
                    seed=own_seed,
                    batch_size=size,
                    length=len(dataset) if limit is None else min(len(dataset), limit),
                    whole_batches=whole_batches,
                    reader=self._reader(dataset),
                )
            loaders[name] = loader
        return loaders

    def close(self) -> None:
        """End the workers; safe to forget, and to call twice. Loaders can be used again."""
        if self._pool is not None:
            self._pool.close()
        for each in self._sets():
            if isinstance(each, OwnLoader):
                each.close()

    def _sets(self) -> list[AnySet]:
        return [*([] if self.train is None else [self.train]), *self.eval.values()]

    def _reader(self, dataset: Dataset) -> Reader | None:
        """How a set is read; None = in this process."""
        return None if self._pool is None else self._pool.reader(dataset)

    def _training_set(self) -> AnySet:
        if self.train is None:
            raise DataError(
                "there is no training set: data.source gave none; allowed: a source that returns "
                "train (in Python Data(train=...)), task=evaluate for its evaluation sets, or "
                "task=predict for its predict set"
            )
        return self.train


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _at_least(least: int, key: str, value: int | None, example: int) -> list[Problem]:
    """A problem where a count is given and is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return []
    message = f"is {value!r}; allowed: an integer of at least {least}"
    return [Problem(key, message, f"{key}={example}")]


def _given(values: Mapping[str, tuple[Any, int]]) -> list[Problem]:
    """A problem for each count that may not be left open; with what it usually is."""
    return [
        Problem(key, "is null; allowed: an integer", f"{key}={usual}")
        for key, (value, usual) in values.items()
        if value is None
    ]


def _collate(collate: Any) -> list[Problem]:
    if collate is None or callable(collate):
        return []
    message = (
        f"is a {type(collate).__name__}; allowed: expkit.data.Collate, or your own function by "
        "_target_ with _partial_: true"
    )
    return [Problem("data.collate", message, "data.collate=null")]
