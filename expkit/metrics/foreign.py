"""Metric objects of other libraries as metrics of a run."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import Collective
from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays
from expkit.metrics.gathered import GatheredMetric
from expkit.metrics.labels import read

Arguments = tuple[NDArray[Any], ...]
"""What an object's ``update`` gets for a batch."""


class ForeignMetric(GatheredMetric):
    """Wraps an object with ``reset``, ``update`` and ``compute`` or ``accumulate``.

    torchmetrics objects get CPU tensors; ``paddle.metric`` objects get what their own ``compute``
    makes of Paddle tensors; any other object gets host arrays.

    The state of such an object is its own affair, and not every state can be summed. So with
    several processes each keeps what it would hand over, and at the end of an evaluation the object
    of each process is handed the batches of all, in one order. That costs host memory for the
    outputs and targets of a process's share of the samples (for ``paddle.metric``: for what
    ``compute`` made of them), and each process does the work for all.

    Args:
        metric: the object.
        output: model output that it judges.
        target: field that it judges against.

    Attributes:
        alone: whether there is one process: then a batch is handed over at once and nothing is
            kept. False is right in any case.
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
        self.alone = False
        if self._framework == "torch":
            _keep_to_itself(metric)
        self.reset()

    def reset(self) -> None:
        """Reset the object."""
        self.state = {}
        self._kept: deque[Arguments] = deque()
        self._metric.reset()

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Hand a batch over, or keep it, without its padding.

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
        arguments = self._arguments(predictions, targets)
        if self.alone:
            self._hand_over(arguments)
        else:
            self._kept.append(arguments)

    def reduce(self, group: Collective) -> None:
        """Hand over the batches of all ranks: the first of each rank, then the second.

        Raises:
            DataError: the object raised.
        """
        # Batch by batch, each forgotten once it is handed over: all never lie here at once.
        for _ in range(max(group.all_gather(len(self._kept)))):
            own = self._kept.popleft() if self._kept else None
            for arguments in group.all_gather(own):
                if arguments is not None:
                    self._hand_over_late(arguments)

    def compute(self) -> dict[str, float]:
        """What the object computes: a number, a mapping, or a sequence by names or positions."""
        while self._kept:
            self._hand_over_late(self._kept.popleft())
        result = getattr(self._metric, self._finish)()
        if self._framework == "paddle" and isinstance(result, list | tuple):
            names = self._metric.name()
            if isinstance(names, list | tuple) and len(names) == len(result) > 1:
                result = dict(zip(names, result, strict=True))
        return dict(_numbers(result))

    def _arguments(self, predictions: NDArray[Any], targets: NDArray[Any]) -> Arguments:
        """What the object's ``update`` gets, as host arrays."""
        if self._framework != "paddle":
            return predictions, targets
        paddle = importlib.import_module("paddle")
        made = self._metric.compute(paddle.to_tensor(predictions), paddle.to_tensor(targets))
        return tuple(map(np.asarray, made if isinstance(made, list | tuple) else [made]))

    def _hand_over(self, arguments: Arguments) -> None:
        if self._framework == "torch":
            torch = importlib.import_module("torch")
            self._metric.update(*map(torch.tensor, arguments))
        else:
            self._metric.update(*arguments)

    def _hand_over_late(self, arguments: Arguments) -> None:
        """As `_hand_over`, for a batch whose samples nobody can name any more."""
        try:
            self._hand_over(arguments)
        except Exception as error:
            shapes = " and ".join(f"{each.dtype} {each.shape}" for each in arguments)
            raise DataError(
                f"{self._kind} failed on a batch of {shapes}: {type(error).__name__}: {error}"
            ) from error


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a result under the names or positions that lead to it."""
    parts: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        array = np.asarray(value, dtype=np.float64)
        if array.size == 1:
            yield name, float(array.reshape(()))
            return
        parts = enumerate(array.ravel())
    for part, each in parts:
        yield from _numbers(each, f"{name}/{part}" if name else str(part))


def _keep_to_itself(metric: Any) -> None:
    """Stop a torchmetrics object, and those within it, from talking to other ranks by itself."""
    for part in metric.modules() if hasattr(metric, "modules") else [metric]:
        if hasattr(part, "distributed_available_fn"):
            part.distributed_available_fn = _no_other_rank


def _no_other_rank() -> bool:
    return False


def _framework_of(metric: Any) -> str:
    """``torch`` or ``paddle`` where a class of the object is defined there, else ``numpy``."""
    for kind in type(metric).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("torch", "paddle"):
            return root
    return "numpy"
