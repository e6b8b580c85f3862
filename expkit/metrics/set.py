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
Layout = dict[Key, tuple[tuple[int, ...], str, ReduceOp]]
"""Shape, type and operation of each array."""


class MetricSet:
    """Updates, reduces and computes several metrics together.

    Args:
        metrics: metric by name; an object of another library is wrapped by `ForeignMetric`.
    """

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self.metrics: dict[str, Metric] = {
            name: metric if isinstance(metric, Metric) else ForeignMetric(metric)
            for name, metric in metrics.items()
        }

    @property
    def needs(self) -> frozenset[str]:
        """The outputs that any metric reads."""
        return frozenset(name for metric in self.metrics.values() for name in metric.needs)

    def join(self, group: Collective) -> None:
        """Learn, before the first update, which ranks will reduce together.

        Without it the metrics are right too, but those of other libraries keep all samples.
        """
        for metric in self.metrics.values():
            if isinstance(metric, ForeignMetric):
                metric.alone = group.world_size == 1

    def reset(self) -> None:
        """Forget all samples."""
        for metric in self.metrics.values():
            metric.reset()

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Add one batch to each metric, see `Metric.update`."""
        for metric in self.metrics.values():
            metric.update(outputs, fields, weights)

    def reduce(self, group: Collective) -> None:
        """Give each rank the state of all ranks together; once, after the last update.

        All arrays of one type and one operation travel in one message. A summed state may have
        grown to different sizes: what a rank has not seen is 0.
        """
        for metric in self.metrics.values():
            if isinstance(metric, GatheredMetric):
                metric.reduce(group)
        layout = _common_layout(group.all_gather(self._layout()))
        packs: dict[tuple[str, ReduceOp], list[Key]] = defaultdict(list)
        for key, (_, dtype, op) in layout.items():
            packs[dtype, op].append(key)
        for (_, op), keys in packs.items():
            arrays = [
                _padded(self.metrics[name].state[part], layout[name, part][0])
                for name, part in keys
            ]
            total = group.all_reduce(np.concatenate([array.ravel() for array in arrays]), op)
            ends = np.cumsum([array.size for array in arrays])
            for (name, part), array, values in zip(
                keys, arrays, np.split(total, ends[:-1]), strict=True
            ):
                self.metrics[name].state[part] = values.reshape(array.shape)

    def compute(self) -> dict[str, float]:
        """All numbers by name: ``name`` for a metric's ``""``, ``name/x`` for its ``x``."""
        numbers: dict[str, float] = {}
        for name, metric in self.metrics.items():
            for part, value in metric.compute().items():
                full = f"{name}/{part}" if part else name
                if full in numbers:
                    message = f"two metrics report {full!r}; give one of them another name"
                    raise ConfigError([Problem(f"metrics.{name}", message)])
                numbers[full] = float(value)
        return numbers

    def _layout(self) -> Layout:
        """What this rank has to reduce."""
        return {
            (name, part): (array.shape, str(array.dtype), metric.reduce_ops.get(part, "sum"))
            for name, metric in self.metrics.items()
            if not isinstance(metric, GatheredMetric)
            for part, array in metric.state.items()
        }


def _common_layout(ranks: list[Layout]) -> Layout:
    """The layout into which each rank's arrays fit; the same verdict on all, so that none waits."""
    common = dict(ranks[0])
    for rank, layout in enumerate(ranks):
        if layout.keys() != common.keys():
            name, part = sorted(layout.keys() ^ common.keys())[0]
            raise DataError(
                f"metric {name}: state {part!r} is on rank 0 or rank {rank} only; set it in reset"
            )
        for (name, part), (shape, dtype, op) in layout.items():
            size, first_dtype, _ = common[name, part]
            if dtype not in ("float64", "int64") or dtype != first_dtype:
                allowed = "float64 or int64, the same on all ranks"
                message = f"state {part!r} is {dtype} on rank {rank}; allowed: {allowed}"
                raise ConfigError([Problem(f"metrics.{name}", message)])
            if len(shape) != len(size) or (op != "sum" and shape != size):
                raise DataError(
                    f"metric {name}: state {part!r} has the shape {shape} on rank {rank} and "
                    f"{size} on rank 0; allowed: equal shapes, or for sums axes of other lengths"
                )
            common[name, part] = (tuple(map(max, size, shape)), dtype, op)
    return common


def _padded(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array with zeros at the end of each axis that is shorter than wanted."""
    if array.shape == shape:
        return array
    return np.pad(array, [(0, full - size) for full, size in zip(shape, array.shape, strict=True)])
