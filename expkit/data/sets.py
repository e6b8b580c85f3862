"""The data of an experiment: the sets, and how they are cut into batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.dataset import CollateFunction, Dataset, as_dataset, is_column
from expkit.data.loader import PlanLoader, ShardLoader
from expkit.data.plan import Plan, step_size
from expkit.data.sampler import Random, Sampler, Sequential


@final
class Data:
    """Training and evaluation sets with their loaders.

    Args:
        train: training set, anything that `as_dataset` takes; None where nothing is trained.
        eval: evaluation set, or a mapping name -> set; None = no evaluation.
        batch_size: samples per process and micro-batch.
        global_batch_size: samples per optimizer step over all ranks, in place of ``batch_size``;
            then the world size changes nothing.
        eval_batch_size: samples per process and evaluation batch; None = the larger of 256 and
            ``batch_size``.
        drop_last: leave out the last training batch of an epoch where it is not whole.
        num_workers: only 0 in this version: the training process reads.
        sampler: order of the training samples; None = `Random` with the run's seed.
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
        batch_size: int = 32,
        global_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        sampler: Sampler | None = None,
        collate: CollateFunction | None = None,
    ) -> None:
        problems = [
            *_at_least(1, "data.batch_size", batch_size, 32),
            *_at_least(1, "data.global_batch_size", global_batch_size, 32),
            *_at_least(1, "data.eval_batch_size", eval_batch_size, 256),
            *_workers(num_workers),
            *_sampler(sampler),
        ]
        if problems:
            raise ConfigError(problems)
        self.train = None if train is None else _set(train, collate, "training set")
        named = eval if _is_mapping_of_sets(eval) else {} if eval is None else {"": eval}
        self.eval: dict[str, Dataset] = {
            name: _set(one, collate, f"evaluation set {name}".rstrip())
            for name, one in named.items()
        }
        self._batch_size = batch_size
        self._global_batch_size = global_batch_size
        self._eval_batch_size = eval_batch_size or max(256, batch_size)
        self._drop_last = drop_last
        self._sampler = sampler or Random()

    def train_loader(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        seed: int = 0,
        limit_batches: int | None = None,
        overfit_batches: int = 0,
    ) -> PlanLoader:
        """The windows of this rank.

        Args:
            rank: number of this process.
            world_size: processes in all.
            accumulate: micro-batches per optimizer step.
            seed: the run's seed.
            limit_batches: end each epoch after this many batches; None = all.
            overfit_batches: where greater than 0, each epoch is this many batches from the
                beginning of the data set, in its order.
        """
        problems = [
            *_at_least(1, "trainer.accumulate", accumulate, 1),
            *_at_least(1, "trainer.limit_train_batches", limit_batches, 1),
            *_at_least(0, "trainer.overfit_batches", overfit_batches, 0),
        ]
        if problems:
            raise ConfigError(problems)
        train = self._training_set()
        sampler = Sequential() if overfit_batches else self._sampler
        size = step_size(self._batch_size, self._global_batch_size, accumulate, world_size)
        plan = Plan(
            sampler.bind(train, seed, size),
            batch_size=self._batch_size,
            global_batch_size=self._global_batch_size,
            accumulate=accumulate,
            rank=rank,
            world_size=world_size,
            drop_last=self._drop_last,
            limit_batches=_least(limit_batches, overfit_batches or None),
        )
        return PlanLoader(train, plan)

    def eval_loaders(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        limit_batches: int | None = None,
        overfit_batches: int = 0,
        in_step: bool = False,
    ) -> dict[str, ShardLoader]:
        """The evaluation batches of this rank by the name of the set.

        Args:
            rank: number of this process.
            world_size: processes in all.
            limit_batches: end after this many batches of each set; None = all.
            overfit_batches: where greater than 0, evaluate on the training samples that
                `train_loader` is limited to.
            in_step: whether all ranks must get equally many batches; see `ShardLoader`.
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
        return {
            name: ShardLoader(
                dataset,
                batch_size=self._eval_batch_size,
                length=len(dataset) if batches is None else min(len(dataset), batches * samples),
                rank=rank,
                world_size=world_size,
                in_step=in_step,
            )
            for name, dataset in sets.items()
        }

    def _training_set(self) -> Dataset:
        if self.train is None:
            raise DataError("there is no training set; allowed: task=evaluate, or Data(train=...)")
        return self.train


def _set(source: Any, collate: CollateFunction | None, what: str) -> Dataset:
    dataset = as_dataset(source, collate)
    if len(dataset) == 0:
        raise DataError(f"the {what} is empty; allowed: at least 1 sample")
    return dataset


def _is_mapping_of_sets(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return not value or not all(is_column(part) for part in value.values())


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _at_least(least: int, key: str, value: int | None, example: int) -> list[Problem]:
    """A problem where a count is given and is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return []
    message = f"is {value!r}; allowed: an integer of at least {least}"
    return [Problem(key, message, f"{key}={example}")]


def _workers(num_workers: int) -> list[Problem]:
    if num_workers == 0 and not isinstance(num_workers, bool):
        return []
    message = f"is {num_workers!r}; allowed in this version: 0 (the training process reads)"
    return [Problem("data.num_workers", message, "data.num_workers=0")]


def _sampler(sampler: Any) -> list[Problem]:
    if sampler is None or isinstance(sampler, Sampler):
        return []
    message = f"is a {type(sampler).__name__}; allowed: a subclass of expkit.data.Sampler"
    return [Problem("sampler", message, "sampler=random")]
