"""Small problems and single steps on them: what the facts about drivers are measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expkit.core.batch import Batch
from expkit.core.driver import Driver
from expkit.core.loss_term import LossTerm

FEATURES, CLASSES = 6, 3
"""Numbers in a sample of `batch_of`, and its classes."""

NUM_SAMPLES = 64
"""How many samples `batch_of` chooses from."""

State = Mapping[str, NDArray[Any]]


def batch_of(indices: ArrayLike, weights: ArrayLike | None = None, seed: int = 0) -> Batch:
    """Samples by index: the same index is the same sample in every batch, on every rank.

    Args:
        indices: which of the `NUM_SAMPLES` samples.
        weights: one per sample; None = each counts 1.
        seed: of the whole set.

    Returns:
        Fields ``x`` of shape (n, FEATURES), float32, and ``y`` of shape (n,), labels.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((NUM_SAMPLES, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, NUM_SAMPLES)
    chosen = np.asarray(indices, dtype=np.int64)
    counts = None if weights is None else np.asarray(weights, dtype=np.float32)
    return Batch({"x": x[chosen], "y": y[chosen]}, chosen, counts)


def step(
    driver: Driver,
    batches: Sequence[Batch],
    factors: Sequence[float] = (1.0,),
    clip_norm: float | None = None,
    weight: float | None = None,
) -> tuple[list[LossTerm], float | None, bool]:
    """One optimizer step over a window, as the trainer makes it.

    Args:
        driver: prepared with a model.
        batches: this rank's micro-batches.
        factors: of the learning rates, one per optimizer.
        clip_norm: see `Driver.clip_gradients`; None = no clipping.
        weight: how many samples count over all ranks; None = those of ``batches``.

    Returns:
        The losses of the micro-batches, the norm before clipping, whether the update was made.
    """
    if weight is None:
        weight = sum(batch.size for batch in batches)
    terms = []
    for batch in batches:
        outputs = driver.forward(batch, batch is batches[-1])
        term = driver.loss(outputs, batch)
        driver.backward(term, 1.0 / weight)
        terms.append(term)
    norm = None if clip_norm is None else float(driver.clip_gradients(clip_norm))
    applied = driver.optimizer_step(list(factors))
    return terms, norm, applied


def gradient(
    driver: Driver,
    batches: Sequence[Batch],
    clip_norm: float | None = None,
    weight: float | None = None,
) -> tuple[dict[str, NDArray[Any]], float | None]:
    """The gradient by parameter path, read off a step of SGD with rate 1; the norm of `step`."""
    before = driver.model_state()
    _, norm, _ = step(driver, batches, clip_norm=clip_norm, weight=weight)
    after = driver.model_state()
    return {path: before[path] - after[path] for path in before}, norm


def flat(state: State) -> NDArray[np.float64]:
    """All numbers of a state by path in one array, in the order of the paths."""
    return np.concatenate([np.ravel(state[path]).astype(np.float64) for path in sorted(state)])


def assert_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    """Two state trees are equal to the last bit."""
    assert left.keys() == right.keys(), f"{sorted(left)} and {sorted(right)}"
    for key, value in left.items():
        if isinstance(value, Mapping):
            assert_same(value, right[key])
        else:
            np.testing.assert_array_equal(value, right[key], err_msg=str(key))
