"""What a subclass of the distributed suite supplies, and the ranks that its facts run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from expkit.launch.rendezvous import Framework
from expkit.testing.rank_checks.subject import NamedSubject
from expkit.testing.rank_checks.training import Windows, merged, train
from expkit.testing.ranks import RankPool

_CHECKS = "expkit.testing.rank_checks"


class RankSubject:
    """A driver of several ranks that facts are about.

    Attributes:
        framework: how ranks learn their place, see `RankPool`.
        world_size: how many ranks.
        driver_factory: ``module:function`` that makes the driver on a rank, with the options given.
        model_factory: ``module:function`` that makes a model, with the options of
            `Subject.make_model`.
        single_factory: ``module:function`` that makes a driver of one process which passes
            `DriverSuite`: what the ranks do together is compared with what it does alone.
        options: of the driver on the ranks.
        norm: a normalisation of the model that keeps statistics; ``none`` where there is none.
        scaled_precision: a precision with loss scaling that works on the CPU; None where there is
            none.
    """

    framework: ClassVar[Framework]
    world_size: ClassVar[int]
    driver_factory: ClassVar[str]
    model_factory: ClassVar[str]
    single_factory: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    norm: ClassVar[str] = "batch"
    scaled_precision: ClassVar[str | None] = None

    @pytest.fixture
    def pool(self, request: pytest.FixtureRequest) -> RankPool:
        """The ranks; those of the last fact where they are of the same kind and still whole."""
        return _shared(request.config).get(self.framework, self.world_size)

    def on_ranks(self, pool: RankPool, check: str, **kwargs: Any) -> list[Any]:
        """Call ``check`` of `expkit.testing.rank_checks` on all ranks, see `RankPool.run`."""
        subject = NamedSubject(self.driver_factory, self.model_factory, self.options)
        return pool.run(f"{_CHECKS}.{check}", subject=subject.description, **kwargs)

    def trained(self, pool: RankPool, windows: Windows, **kwargs: Any) -> list[dict[str, Any]]:
        """What each rank has after training, see `rank_checks.training.train`."""
        return self.on_ranks(pool, "training:train", windows=windows, **kwargs)

    def trained_alone(self, windows: Windows, **kwargs: Any) -> dict[str, Any]:
        """What a single process has after training on the micro-batches of all ranks."""
        subject = NamedSubject(self.single_factory, self.model_factory)
        return train(subject.description, windows=merged(windows), **kwargs)


class _SharedPool:
    """One pool at a time: processes that hold a framework are large."""

    def __init__(self) -> None:
        self._pool: RankPool | None = None

    def get(self, framework: Framework, world_size: int) -> RankPool:
        pool = self._pool
        if pool is not None and (pool.framework, pool.world_size) == (framework, world_size):
            if pool.is_broken:
                pool.restart()
            return pool
        self.close()
        self._pool = RankPool(framework, world_size)
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None


_KEY = pytest.StashKey[_SharedPool]()


def _shared(config: pytest.Config) -> _SharedPool:
    if _KEY not in config.stash:
        config.stash[_KEY] = _SharedPool()
        config.add_cleanup(config.stash[_KEY].close)
    return config.stash[_KEY]


def split(world_size: int, *, steps: int, per_rank: int, parts: int = 1) -> Iterator[Any]:
    """Windows in which rank r takes every ``world_size``-th of the next samples, in micro-batches.

    Args:
        world_size: how many ranks.
        steps: how many windows.
        per_rank: samples of each micro-batch.
        parts: micro-batches of each rank and window.
    """
    size = world_size * per_rank
    for number in range(steps):
        starts = [(number * parts + index) * size for index in range(parts)]
        yield [
            [
                {
                    "indices": [i % 64 for i in range(start + rank, start + size, world_size)],
                    "weights": None,
                }
                for start in starts
            ]
            for rank in range(world_size)
        ]
