"""All metrics of an evaluation as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import Collective, ReduceOp
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays, Metric
from expkit.metrics.foreign import ForeignMetric
from expkit.metrics.gathered import GatheredMetric

Key = tuple[str, str]
"""Name of a metric and name of an array of its state."""


class MetricSet:
    """Updates, reduces and computes several metrics together.

    Args:
        metrics: metric by name; an object of another library is wrapped by `ForeignMetric`.
    """

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self.metrics: dict[str, Metric] = {
            name: metric if isinstance(metric, Metric) else ForeignMetric(metric) for name, metric in metrics.items()
        }

    @property
    def needs(self) -> frozenset[str]:
        """The outputs that any metric reads."""
        return frozenset(name for metric in self.metrics.values() for name in metric.needs)

    def reset(self) -> None:
        """Forget all samples."""
        for metric in self.metrics.values():
            metric.reset()

    def update(self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None) -> None:
        """Add one batch to each metric, see `Metric.update`."""
        for metric in self.metrics.values():
            metric.update(outputs, fields, weights)

    def reduce(self, group: Collective) -> None:
        """Give each rank the state of all ranks together; once, after the last update.

        All arrays of one type and one operation travel in one message. A summed state may have grown to different
        sizes: what a rank has not seen is 0.
        """
        for metric in self.metrics.values():
            if isinstance(metric, GatheredMetric):
                metric.merge(group.all_gather(metric.state))
        shapes = _common_shapes(group.all_gather({key: array.shape for key, (array, _) in self._arrays().items()}))
        packs: dict[tuple[str, ReduceOp], list[Key]] = defaultdict(list)
        arrays = self._arrays()
        for key, (array, op) in arrays.items():
            if op != "sum" and array.shape != shapes[key]:
                raise DataError(f"metric {key[0]}: state {key[1]!r} has another shape on another rank and is no sum")
            packs[str(array.dtype), op].append(key)
        for (_, op), keys in packs.items():
            padded = [_padded(arrays[key][0], shapes[key]) for key in keys]
            total = group.all_reduce(np.concatenate([array.ravel() for array in padded]), op)
            ends = np.cumsum([array.size for array in padded])
            for (name, part), array, values in zip(keys, padded, np.split(total, ends[:-1]), strict=True):
                self.metrics[name].state[part] = values.reshape(array.shape)

    def compute(self) -> dict[str, float]:
        """All numbers by name: ``name`` for what a metric calls ``""``, ``name/x`` for what it calls ``x``."""
        numbers: dict[str, float] = {}
        for name, metric in self.metrics.items():
            for part, value in metric.compute().items():
                full = f"{name}/{part}" if part else name
                if full in numbers:
                    message = f"two metrics report {full!r}; give one of them another name"
                    raise ConfigError([Problem(f"metrics.{name}", message)])
                numbers[full] = float(value)
        return numbers

    def _arrays(self) -> dict[Key, tuple[NDArray[Any], ReduceOp]]:
        """The arrays that are reduced, each with its operation."""
        arrays: dict[Key, tuple[NDArray[Any], ReduceOp]] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, GatheredMetric):
                continue
            for part, array in metric.state.items():
                if array.dtype not in (np.float64, np.int64):
                    message = f"state {part!r} of {type(metric).__name__} is {array.dtype}; allowed: float64, int64"
                    raise ConfigError([Problem(f"metrics.{name}", message)])
                arrays[name, part] = (array, metric.reduce_ops.get(part, "sum"))
        return arrays


def _common_shapes(ranks: list[dict[Key, tuple[int, ...]]]) -> dict[Key, tuple[int, ...]]:
    """The shape into which each rank's array fits."""
    common = dict(ranks[0])
    for rank, shapes in enumerate(ranks[1:], start=1):
        if shapes.keys() != common.keys():
            name, part = sorted(shapes.keys() ^ common.keys())[0]
            raise DataError(f"metric {name}: state {part!r} is on rank 0 or rank {rank} only; set it in reset")
        for key, shape in shapes.items():
            if len(shape) != len(common[key]):
                raise DataError(f"metric {key[0]}: state {key[1]!r} has other axes on rank {rank}: {shape}")
            common[key] = tuple(map(max, common[key], shape))
    return common


def _padded(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array with zeros at the end of each axis that is shorter than wanted."""
    if array.shape == shape:
        return array
    return np.pad(array, [(0, full - size) for full, size in zip(shape, array.shape, strict=True)])
