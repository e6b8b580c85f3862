"""Evaluation: each sample once, sums over batches and ranks, one number for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from expkit.core.batch import Batch, EvalLoader
from expkit.core.binding import Binding
from expkit.core.driver import Driver
from expkit.core.errors import ExpkitError
from expkit.core.failure import raise_failure
from expkit.core.metric import MetricGroup, NoMetrics


class Evaluator:
    """Computes metrics, and the loss, over one or more evaluation sets.

    Args:
        driver: where the model runs.
        data: gives the evaluation sets: an object with ``eval_loaders`` (`expkit.data.Data`).
        metrics: what to compute besides the loss (`expkit.metrics.MetricSet`).
        model: a model to prepare the driver with; None where the driver holds one already.
        loss: the model's loss, see `Driver.prepare`.
        binding: how it is called, see `Driver.prepare`.
        limit_batches: evaluate no more than this many batches of each set; None = all.
        overfit_batches: where greater than 0, evaluate on this many training batches instead.
        seed: the run's, of what is drawn when samples are read.

    Attributes:
        num_batches: how many batches it has evaluated so far: a sign of life.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        data: Any,
        metrics: MetricGroup | None = None,
        model: Any = None,
        loss: Any = None,
        binding: Binding | None = None,
        limit_batches: int | None = None,
        overfit_batches: int = 0,
        seed: int = 0,
    ) -> None:
        if model is not None:
            driver.prepare(model, None, loss, binding)
        self._driver = driver
        self._loss = loss
        self._metrics = metrics or NoMetrics()
        self._needs = self._metrics.needs | {"loss"}
        self._metrics.join(driver.group)
        self._loaders: Mapping[str, EvalLoader] = data.eval_loaders(
            rank=driver.rank,
            world_size=driver.world_size,
            limit_batches=limit_batches,
            overfit_batches=overfit_batches,
            in_step=driver.evaluates_together,
            seed=seed,
        )
        self.num_batches = 0

    @property
    def has_data(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self._loaders)

    def run(self) -> dict[str, float]:
        """Evaluate all sets.

        Returns:
            Metrics by name; those of a named set as ``set/name``.
        """
        results: dict[str, float] = {}
        for name, loader in self._loaders.items():
            prefix = f"{name}/" if name else ""
            for key, value in self._evaluate(loader).items():
                results[prefix + key] = value
        return results

    def _evaluate(self, loader: EvalLoader) -> dict[str, float]:
        self._metrics.reset()
        loss = np.zeros(2)
        for batch in loader.batches():
            try:
                outputs = self._driver.evaluate_step(batch, self._needs)
                self._metrics.update(outputs, batch.fields, batch.weights)
            except ExpkitError:
                raise
            except Exception as error:
                raise_failure("evaluation", batch, error, self._driver, self._loss)
            self.num_batches += 1
            if "loss" in outputs:
                loss += _loss_sums(outputs, batch)
        self._metrics.reduce(self._driver.group)
        total, weight = self._driver.all_reduce(loss)
        with np.errstate(invalid="ignore"):
            values = {"loss": float(total / weight)} if weight else {}
        return values | self._metrics.compute()


def _loss_sums(outputs: Mapping[str, Any], batch: Batch) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(weighted sum, sum of weights) of a batch's losses in float64."""
    values = np.asarray(outputs["loss"], dtype=np.float64)
    counts = 1.0 if batch.weights is None else batch.weights.astype(np.float64)
    if "loss_weight" in outputs:  # values are sums over tokens already
        return np.array([(values * counts).sum(), (outputs["loss_weight"] * counts).sum()])
    return np.array([(values * counts).sum(), batch.size], dtype=np.float64)
