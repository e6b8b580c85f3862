"""Training on ranks, over windows that say which rank gets which samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expkit.core.batch import Batch
from expkit.core.driver import StateTree
from expkit.losses import CrossEntropy, MeanSquaredError
from expkit.optimizers import SGD
from expkit.testing.rank_checks.subject import Description, NamedSubject, loss_of, optimizer_of
from expkit.testing.steps import CLASSES, FEATURES, batch_of, gradient, step

Part = Mapping[str, Any]
"""A micro-batch: ``indices``, and ``weights`` or None."""

Windows = Sequence[Sequence[Sequence[Part]]]
"""Steps; of each the ranks, of each rank the micro-batches."""


def part(indices: Sequence[int], weights: Sequence[float] | None = None) -> dict[str, Any]:
    """A micro-batch of these samples."""
    return {"indices": list(indices), "weights": weights}


def merged(windows: Windows) -> list[list[list[Part]]]:
    """The same steps for a world of one: its window has the micro-batches of all ranks."""
    return [[[each for own in ranks for each in own]] for ranks in windows]


def train(
    subject: Description,
    *,
    windows: Windows,
    optimizer: Mapping[str, Any] | None = None,
    ignore_index: int | None = None,
    model: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    clip_norm: float | None = None,
    state: StateTree | None = None,
    generators: Sequence[Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Make steps.

    Args:
        subject: what is trained.
        windows: on which samples.
        optimizer: see `optimizer_of`; None = plain descent with rate 1.
        ignore_index: label that does not count.
        model: options of the model.
        options: options of the driver.
        clip_norm: see `step`.
        state: to go on from, as rank 0 gave it.
        generators: the ``rng`` of each rank to go on from; None = those of ``setup``.
        seed: of driver and model.

    Returns:
        Of this rank: ``state`` at the end, ``losses`` and their weights of each step as sums over
        its micro-batches, ``norms``, ``applied``, and the state ``before`` the first step.
    """
    named = NamedSubject(**subject)
    driver = named.make_driver(**(options or {}))
    driver.setup(seed)
    made = named.make_model(**(model or {}))
    made.initialize(seed)
    chosen = optimizer_of(optimizer or {"name": "sgd", "lr": 1.0})
    driver.prepare(made, chosen, loss_of(ignore_index))
    if state is not None:
        own = {} if generators is None else generators[driver.rank]
        driver.load_state(dict(state) | {"rng": own})
    before = driver.state()
    losses, norms, applied = [], [], []
    for ranks in windows:
        batches = [batch_of(each["indices"], each["weights"]) for each in ranks[driver.rank]]
        sizes = [batch_of(each["indices"], each["weights"]).size for own in ranks for each in own]
        terms, norm, done = step(driver, batches, clip_norm=clip_norm, weight=sum(sizes))
        losses.append(driver.read_losses(terms).sum(axis=0))
        norms.append(norm)
        applied.append(done)
    found = {
        "before": before,
        "state": driver.state(),
        "losses": np.array(losses),
        "norms": norms,
        "applied": applied,
    }
    driver.shutdown()
    return found


def mean_of_slopes(subject: Description, sizes: Sequence[int], slopes: Sequence[float]) -> Any:
    """The gradient of a bias where each sample of rank r has the gradient ``slopes[r]``.

    The model is linear with parameters 0. With the squared error, averaged over the outputs, the
    gradient of a bias is 2 / CLASSES * (0 - target), so the target is -CLASSES / 2 * slope.
    """
    named = NamedSubject(**subject)
    driver = named.prepared(loss=MeanSquaredError(target="target"), hidden=())
    driver.load_model_state({k: np.zeros_like(v) for k, v in _whole(driver).items()})
    size, slope = sizes[driver.rank], slopes[driver.rank]
    target = np.full((size, CLASSES), -CLASSES / 2 * slope, dtype=np.float32)
    fields = {"x": np.zeros((size, FEATURES), dtype=np.float32), "target": target}
    batch = Batch(fields, np.arange(size))
    found, _ = gradient(driver, [batch], weight=float(sum(sizes)))
    return [value for value in found.values() if value.shape == (CLASSES,)]


def keeps_to_itself_until_the_end(subject: Description) -> list[bool] | None:
    """Ranks that are at different micro-batches of a window meet only at its end.

    Rank 0 goes through all but the last before it comes to a barrier, the others go to the barrier
    first: a driver that sent anything in between would wait for ever, or fail.

    The two steps before that are alike on all ranks: a framework's wrapper sets itself up in them.

    Returns:
        Whether the updates were made; None where a rank holds only a part of the model, so that
        the forward itself needs the others.
    """
    driver = NamedSubject(**subject).prepared()
    if driver.evaluates_together:
        driver.shutdown()
        return None
    early = [batch_of(range(4)), batch_of(range(4, 7))]
    for _ in range(2):
        step(driver, early, weight=7.0 * driver.world_size)
    done = []
    for number in range(2):
        if driver.rank != 0:
            driver.barrier()
        for batch in early:
            driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 20)
        if driver.rank == 0:
            driver.barrier()
        last = batch_of(range(10 + number, 13 + number))
        driver.backward(driver.loss(driver.forward(last, True), last), 1 / 20)
        done.append(driver.optimizer_step([1.0]))
    driver.shutdown()
    return done


def evaluates_without_a_trace(subject: Description, norm: str) -> bool:
    """Each rank evaluates in the middle of a window; where it may, alone.

    Returns:
        Whether the state was the same before and after.
    """
    driver = NamedSubject(**subject).prepared(
        optimizer_of({"name": "adam", "lr": 0.01}), dropout=0.5, norm=norm
    )
    batch = batch_of(range(8))
    step(driver, [batch], weight=8.0 * driver.world_size)
    driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 16)
    before = driver.state()
    for rank in range(driver.world_size):
        if driver.evaluates_together or rank == driver.rank:
            driver.evaluate_step(batch_of(range(rank + 2)), frozenset({"output", "loss"}))
        driver.barrier()
    after = driver.state()
    driver.discard_gradients()
    driver.shutdown()
    return _equal(before, after)


def overflow(subject: Description, precision: str) -> dict[str, Any]:
    """A step whose gradient overflows on the last rank alone, and a step after it."""
    named = NamedSubject(**subject)
    driver = named.make_driver(precision=precision, loss_scale=1024.0)
    driver.setup(0)
    model = named.make_model()
    model.initialize(0)
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    states, applied = [driver.state()], []
    for too_large in (driver.rank == driver.world_size - 1, False):
        batch = batch_of(range(4))
        if too_large:
            batch.fields["x"][0] = 1e30
        _, _, done = step(driver, [batch], weight=4.0 * driver.world_size)
        applied.append(done)
        states.append(driver.state())
    driver.shutdown()
    return {"applied": applied, "states": states}


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    return bool(np.array_equal(left, right))


def _whole(driver: Any) -> dict[str, Any]:
    """The parameters as rank 0 knows them, on all ranks."""
    whole: dict[str, Any] = driver.broadcast(driver.model_state())
    return whole
