"""Samples drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.seeding import derive_seed
from expkit.data.dataset import Dataset
from expkit.data.sampler import Sampler, checked_count, checked_flag, checked_seed
from expkit.data.values import as_numbers, checked_by, checked_numbers, values_of

_WORDS = 4  # that Philox gives for each value of its counter


@final
class Weighted(Sampler):
    """Draws samples with probabilities in proportion to their weights; other ones each epoch.

    Args:
        weights: name of a field with one weight per sample, or the weights themselves.
        by: name of a field with the class of each sample, in place of ``weights``: all classes
            become equally likely, and so do all samples of a class.
        num_samples: draws in an epoch; None = as many as there are samples, or, without
            replacement, as there are samples whose weight is not 0.
        replacement: whether a sample may be drawn again in the same epoch. Without, the epoch's
            order is drawn as a whole, each next sample in proportion to the weights of those that
            are left.
        seed: of the draws; None = the run's seed.

    Raises:
        ConfigError: both or neither of ``weights`` and ``by``, or a number that is none.
    """

    def __init__(
        self,
        weights: str | Sequence[float] | NDArray[Any] | None = None,
        by: str | None = None,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        if (weights is None) == (by is None):
            what = "is null, and so is" if weights is None else "is given, and so is"
            message = f"{what} sampler.by; allowed: one of the two"
            hint = "sampler.by=y" if weights is None else "sampler.by=null"
            raise ConfigError([Problem("sampler.weights", message, hint)])
        self.weights = weights
        self.by = None if by is None else checked_by(by, takes_functions=False)
        if num_samples is not None:
            checked_count("sampler.num_samples", num_samples, 1000)
        self.num_samples = num_samples
        self.replacement = checked_flag("sampler.replacement", replacement)
        self.seed = checked_seed(seed)

    def prepare(self, dataset: Dataset, seed: int, step_size: int) -> None:  # noqa: ARG002
        """Read the weight or class of each sample once."""
        weights = self._read(dataset)
        self._possible = np.flatnonzero(weights)
        number = len(weights) if self.replacement else len(self._possible)
        self._length = number if self.num_samples is None else self.num_samples
        if self._length > number and not self.replacement:
            message = (
                f"is {self._length}, but only {number} samples have a weight other than 0, and "
                f"none is drawn twice; allowed: at most {number}, or sampler.replacement=true"
            )
            raise ConfigError(
                [Problem("sampler.num_samples", message, f"sampler.num_samples={number}")]
            )
        self._weights = weights[self._possible]
        self._seed = seed if self.seed is None else self.seed
        self._cumulative = np.cumsum(self._weights / self._weights.max())  # the sum stays finite
        self._latest: tuple[int, Indices] | None = None

    @property
    def length(self) -> int:
        """Draws in an epoch."""
        return self._length

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The epoch's draws number start to stop - 1."""
        key = derive_seed(self._seed, "weighted", epoch)
        if self.replacement:
            drawn = _uniform(key, start, stop) * self._cumulative[-1]
            places = np.searchsorted(self._cumulative, drawn, side="right")
            np.minimum(places, len(self._possible) - 1, out=places)  # where a product rounded up
        else:
            if self._latest is None or self._latest[0] != epoch:
                self._latest = epoch, self._without_replacement(key)
            places = self._latest[1][start:stop]
        samples: Indices = self._possible[places]
        return samples

    def _without_replacement(self, key: int) -> Indices:
        """Places of the possible samples, in the order in which they are drawn.

        Each waits a time of exponential distribution whose rate is its weight; who comes first is
        drawn first. P. Efraimidis and P. Spirakis, "Weighted random sampling with a reservoir",
        Information Processing Letters 97 (2006); here in logarithms, which neither overflow nor
        vanish.
        """
        waits = np.log(-np.log(_uniform(key, 0, len(self._weights)))) - np.log(self._weights)
        return np.argsort(waits, kind="stable")[: self._length].astype(np.int64)

    def _read(self, dataset: Dataset) -> NDArray[np.float64]:
        if self.by is not None:
            return _balanced(values_of(dataset, self.by), self.by)
        if isinstance(self.weights, str):
            what = f"sampler.weights={self.weights!r}"
            weights = checked_numbers(values_of(dataset, self.weights, "sampler.weights"), what)
        else:
            what = "sampler.weights"
            weights = as_numbers(self.weights, what)
        weights = weights.astype(np.float64)
        if len(weights) != len(dataset):
            raise DataError(
                f"{what} has {len(weights)} numbers; allowed: one for each of the {len(dataset)} "
                "samples"
            )
        wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
        if len(wrong):
            raise DataError(
                f"{what} is {weights[wrong[0]]} at sample {wrong[0]}; allowed: 0 or more, and "
                "finite"
            )
        if not weights.any():
            raise DataError(f"{what} is 0 for all samples; allowed: a weight above 0 for some")
        return weights


def _balanced(classes: NDArray[Any], by: str) -> NDArray[np.float64]:
    """Weights by which all classes are equally likely."""
    if classes.ndim != 1 or classes.dtype.kind not in "biuO":
        raise DataError(
            f"sampler.by={by!r} gives {classes.dtype} values of shape {classes.shape[1:]}; "
            "allowed: one class per sample, an integer or a text"
        )
    _, places, counts = np.unique(classes, return_inverse=True, return_counts=True)
    return 1.0 / counts[places].astype(np.float64)


def _uniform(key: int, start: int, stop: int) -> NDArray[np.float64]:
    """Numbers start to stop - 1 of a random sequence, each uniform in (0, 1).

    They are computed from their number: the sequence needs no memory and no run-up.
    """
    first, skipped = divmod(start, _WORDS)
    words = np.random.Philox(key=key, counter=first).random_raw(skipped + stop - start)
    high = words[skipped:] >> np.uint64(12)
    return (high.astype(np.float64) + 0.5) * 2.0**-52
