"""What the ways in which ranks sum their gradients may have to say."""

from __future__ import annotations

from collections.abc import Sequence

from paddle import Tensor, nn

from expkit.core.errors import DriverError
from expkit.drivers.replicas import names_of


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
