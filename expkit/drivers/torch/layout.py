"""Which part of each tensor of a model this rank holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from expkit.core.collective import Collective
from expkit.drivers.torch.state import state_tensors


class Layout(ABC):
    """Which part of each tensor of a model this rank holds: all of it, or a shard."""

    @abstractmethod
    def check(self, optimizers: Any) -> None:
        """Raise ConfigError for an optimizer that cannot train what this rank holds.

        Args:
            optimizers: see `Driver.prepare`.
        """

    @abstractmethod
    def parameters(self, model: nn.Module) -> dict[str, Tensor]:
        """What this rank trains by parameter path."""

    @abstractmethod
    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """What this rank holds of the parameters and persistent buffers by path, not copied."""

    @abstractmethod
    def norm(self, gradients: list[Tensor]) -> Tensor:
        """The L2 norm over all entries of the whole gradients."""

    @abstractmethod
    def gather(self, read: Callable[[], Mapping[str, Any]], on_all: bool = False) -> dict[str, Any]:
        """A state of whole arrays on rank 0, and an empty one on the others; a collective.

        Args:
            read: gives the state of what this rank holds, at any depth by parameter path or by
                ``<path>/<accumulator>``.
            on_all: give it to all ranks.
        """

    @abstractmethod
    def part(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What this rank holds of a state of whole arrays.

        Raises:
            CheckpointError: an array of another shape than its parameter.
        """


class Whole(Layout):
    """Each rank holds everything."""

    def __init__(self, group: Collective) -> None:
        self._group = group

    def check(self, optimizers: Any) -> None:
        """All optimizers can."""

    def parameters(self, model: nn.Module) -> dict[str, Tensor]:
        """See `Layout.parameters`."""
        return dict(model.named_parameters())

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """See `Layout.tensors`."""
        return state_tensors(model)

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """See `Layout.norm`."""
        return nn.utils.get_total_norm(gradients)

    def gather(self, read: Callable[[], Mapping[str, Any]], on_all: bool = False) -> dict[str, Any]:
        """See `Layout.gather`; nothing is sent, the other ranks read nothing."""
        return dict(read()) if on_all or self._group.rank == 0 else {}

    def part(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The state itself."""
        return state
