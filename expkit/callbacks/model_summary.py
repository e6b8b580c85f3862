"""Tells how large a model is, part by part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

from numpy.typing import NDArray

from expkit.callbacks.announce import announce
from expkit.callbacks.refusal import refuse
from expkit.core.events import Callback, Context

log = logging.getLogger(__name__)


class ModuleSize(NamedTuple):
    """How many numbers a part of a model has.

    Attributes:
        name: path of the part; empty for the model itself.
        parameters: how many parameters it has.
        trainable: how many of these are trained.
        buffers: how many numbers besides, such as running statistics.
    """

    name: str
    parameters: int
    trainable: int
    buffers: int


@final
class ModelSummary(Callback):
    """Logs a table of the model's parts with the numbers of their parameters, before training.

    Args:
        depth: components of a path that make up a part: 1 = the model's children, 2 = theirs.
    """

    run_on = "all"  # where ranks hold parts of the model, its state comes from all of them

    def __init__(self, depth: int = 2) -> None:
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
            refuse("model_summary", "depth", depth, "whole numbers from 1", 2)
        self._depth = depth

    def fit_start(self, context: Context) -> None:
        """Log the table."""
        arrays = context.driver.model_state()
        if context.driver.rank:
            return
        # All frameworks name parameters so, and each parameter says whether it is trained.
        parameters = dict(context.driver.unwrap().named_parameters())
        sizes = module_sizes(arrays, parameters, self._depth)
        for line in table(sizes):
            announce(log, line)


def module_sizes(
    arrays: Mapping[str, NDArray[Any]], parameters: Mapping[str, Any], depth: int
) -> list[ModuleSize]:
    """The sizes of a model's parts in the order of the model.

    Args:
        arrays: parameters and buffers by path.
        parameters: the framework's parameters by path; any other path of ``arrays`` is a buffer.
        depth: components of a path that make up a part.
    """
    counts: dict[str, list[int]] = {}
    for path, array in arrays.items():
        count = counts.setdefault(".".join(path.split(".")[:-1][:depth]), [0, 0, 0])
        if path not in parameters:
            count[2] += array.size
            continue
        count[0] += array.size
        if _is_trainable(parameters[path]):
            count[1] += array.size
    return [ModuleSize(name, *count) for name, count in counts.items()]


def table(sizes: list[ModuleSize]) -> Iterator[str]:
    """The lines of a table with a total below."""
    total = ModuleSize(
        "total",
        sum(size.parameters for size in sizes),
        sum(size.trainable for size in sizes),
        sum(size.buffers for size in sizes),
    )
    rows = [
        ("module", "parameters", "trainable", "buffers"),
        *(
            (s.name or "(model)", f"{s.parameters:,}", f"{s.trainable:,}", f"{s.buffers:,}")
            for s in [*sizes, total]
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers])


def _is_trainable(parameter: Any) -> bool:
    return bool(getattr(parameter, "requires_grad", getattr(parameter, "trainable", True)))
