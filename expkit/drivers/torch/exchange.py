"""What the ways in which ranks sum their gradients have in common."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn

from expkit.core.errors import DriverError
from expkit.drivers import replicas
from expkit.drivers.torch.process_group import ProcessGroup


class GradientExchange(replicas.GradientExchange):
    """Sums gradients over ranks that hold the same model."""

    @abstractmethod
    def backward(self, total: Tensor) -> None:
        """See `Parallel.backward`."""


class Agreement:
    """Makes sure, before a window's last forward, that all ranks train the same parameters.

    A wrapper would wait for ever for a gradient that another rank does not compute. The flags of
    the group travel along.

    Args:
        group: the ranks.
        model: whose parameters are trained.
    """

    def __init__(self, group: ProcessGroup, model: nn.Module) -> None:
        self._group = group
        self._parameters = list(model.parameters())
        self._trained: list[bool] | None = None
        self._flags: list[bool] = []

    def reach(self) -> bool:
        """Agree; a collective.

        Returns:
            Whether other parameters are trained than the last time.
        """
        trained = [p.requires_grad for p in self._parameters]
        own = zlib.crc32(bytes(trained))
        greatest, least, *flags = self._group.tell([own, -own, *self._group.raised()])
        if greatest != -least:
            raise DriverError(
                "the ranks do not train the same parameters: each rank must freeze, and train "
                "again, the same ones at the same step"
            )
        self._flags = [flag > 0 for flag in flags]
        has_changed = self._trained is not None and trained != self._trained
        self._trained = trained
        return has_changed

    def answer(self) -> None:
        """Let the group answer the flags that have travelled."""
        self._group.answer(self._flags)


@contextmanager
def told_apart(group: ProcessGroup, what: str) -> Iterator[None]:
    """Turns those errors of a wrapped model that are errors of a collective into a `RankError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise group.failure(what, error) from error
        raise


def unused_error(
    names: str, rank: int, hint: str = "driver.find_unused_parameters=true"
) -> DriverError:
    """The error for parameters that the loss does not depend on."""
    return DriverError(
        f"on rank {rank} the loss does not depend on {names}: no gradient reached them in this "
        f"step. If that is meant: {hint}, or freeze them by requires_grad_(False)"
    )
