"""Metric objects of other libraries as metrics of a run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays
from expkit.metrics.gathered import GatheredMetric
from expkit.metrics.labels import read


class ForeignMetric(GatheredMetric):
    """Wraps an object with ``reset``, ``update`` and ``compute`` or ``accumulate``.

    torchmetrics objects get CPU tensors; ``paddle.metric`` objects get what their own ``compute``
    makes of Paddle tensors; any other object gets host arrays. The state stays inside the object,
    so that there must be one process.

    Args:
        metric: the object.
        output: model output that it judges.
        target: field that it judges against.
    """

    def __init__(self, metric: Any, output: str = "output", target: str = "y") -> None:
        self._kind = type(metric).__name__
        finish = "accumulate" if hasattr(metric, "accumulate") else "compute"
        lacking = [
            name
            for name in ("reset", "update", finish)
            if not callable(getattr(metric, name, None))
        ]
        if isinstance(metric, type) or lacking:
            what = (
                f"the class {metric.__name__}"
                if isinstance(metric, type)
                else f"{self._kind} ({metric!r})"
            )
            allowed = "an object with reset, update, and compute or accumulate"
            message = f"{what} is no metric; allowed: {allowed}"
            raise ConfigError([Problem("metrics", message, "metrics=none")])
        self.needs = (output,)
        self._metric = metric
        self._finish = finish
        self._framework = _framework_of(metric)
        self._output = output
        self._target = target
        self.reset()

    def reset(self) -> None:
        """Reset the object."""
        self.state = {}
        self._metric.reset()

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Hand a batch over, without its padding.

        Raises:
            DataError: a weight that is neither 0 nor 1, which such an object cannot know.
        """
        predictions, targets = read(self._kind, outputs, self._output, fields, self._target)
        if weights is not None:
            used = weights != 0
            if (weights[used] != 1).any():
                raise DataError(
                    f"{self._kind} is a metric of another library and knows no weights; got "
                    f"{weights[used].min()}; allowed: 0 and 1"
                )
            predictions, targets = predictions[used], targets[used]
        if not len(predictions):
            return
        if self._framework == "torch":
            torch = importlib.import_module("torch")
            self._metric.update(torch.tensor(predictions), torch.tensor(targets))
        elif self._framework == "paddle":
            paddle = importlib.import_module("paddle")
            made = self._metric.compute(paddle.to_tensor(predictions), paddle.to_tensor(targets))
            self._metric.update(
                *map(np.asarray, made if isinstance(made, list | tuple) else [made])
            )
        else:
            self._metric.update(predictions, targets)

    def merge(self, states: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Nothing to merge in one process.

        Raises:
            ConfigError: more than one rank.
        """
        if len(states) > 1:
            message = (
                f"{self._kind} is a metric of another library and cannot be reduced over "
                f"{len(states)} ranks; allowed: one process, or a metric of expkit.metrics"
            )
            raise ConfigError([Problem("metrics", message, "driver.num_processes=1")])

    def compute(self) -> dict[str, float]:
        """What the object computes: a number, a mapping, or a sequence by names or positions."""
        result = getattr(self._metric, self._finish)()
        if isinstance(result, Mapping):
            return {str(name): float(value) for name, value in result.items()}
        values = np.asarray(result, dtype=np.float64)
        if values.size == 1:
            return {"": float(values.reshape(()))}
        names = self._metric.name() if self._framework == "paddle" else None
        labels = names if isinstance(names, list | tuple) else range(values.size)
        return {
            str(label): float(value) for label, value in zip(labels, values.ravel(), strict=True)
        }


def _framework_of(metric: Any) -> str:
    """``torch`` or ``paddle`` where a class of the object is defined there, else ``numpy``."""
    for kind in type(metric).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("torch", "paddle"):
            return root
    return "numpy"
