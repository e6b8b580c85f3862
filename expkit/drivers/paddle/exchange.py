"""The two ways in which ranks sum their gradients have this in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from paddle import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.errors import DriverError
from expkit.drivers.replicas import names_of


class GradientExchange(ABC):
    """Sums gradients over ranks that hold the same model.

    Attributes:
        loss_factor: see `Parallel.loss_factor`.
    """

    loss_factor: float

    @abstractmethod
    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """See `Parallel.training`."""

    @abstractmethod
    def begin(self, sync: bool) -> None:
        """See `Parallel.begin`."""

    @abstractmethod
    def exchange(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], notice: bool | None
    ) -> tuple[Sequence[Tensor], bool]:
        """See `Parallel.exchange`.

        Args:
            parameters: whose gradients are summed.
            passengers: float32 tensors that are summed on the way.
            notice: a flag; None where no rank has one.

        Returns:
            The sums of the passengers, and whether any rank gave notice.
        """


def unused_error(model: nn.Layer, parameters: Sequence[Tensor], rank: int) -> DriverError:
    """The error for parameters that the loss does not depend on."""
    names = names_of(model, parameters)
    return DriverError(
        f"on rank {rank} the loss does not depend on {names}: no gradient "
        "reached them in this step. If that is meant: driver.find_unused_parameters=true, or "
        "freeze them by stop_gradient=True before training"
    )


def partly_error(model: nn.Layer, parameters: Sequence[Tensor]) -> DriverError:
    """The error for parameters that some ranks train and others do not."""
    names = names_of(model, parameters)
    return DriverError(
        f"{names} had a gradient on some ranks only: the ranks must train, "
        "and freeze, the same parameters; a parameter that the loss does not always depend on "
        "needs driver.find_unused_parameters=true"
    )
