"""How ranks train one model together; on one device there is nobody to talk to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import paddle
from paddle import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.collective import Collective, SingleProcess
from expkit.core.errors import ConfigError, Problem


class Parallel(ABC):
    """How ranks train one model together.

    In a step the driver calls, for each micro-batch, ``begin`` and the training call; after the
    last backward of the window ``exchange``.

    Attributes:
        group: the ranks.
        loss_factor: losses are multiplied with it, because the exchange divides by it.
    """

    group: Collective
    loss_factor: float

    @abstractmethod
    def place(self, model: nn.Layer) -> nn.Layer:
        """Make a model the same on all ranks: that of rank 0.

        Returns:
            The plain model, also where ``model`` is one in a wrapper.
        """

    @abstractmethod
    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """The call of a placed model in training."""

    @abstractmethod
    def evaluation(self, model: nn.Layer, binding: Binding) -> Call:
        """The call of a placed model in evaluation."""

    @abstractmethod
    def begin(self, sync: bool) -> None:
        """Get ready for the forward of a micro-batch.

        Args:
            sync: whether it is the last one of its window; before that nothing is communicated.
        """

    @abstractmethod
    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """After the last backward of a window: sum the gradients over the ranks.

        Afterwards gradients and buffers are equal on all ranks, and the group answers its flags.

        Args:
            parameters: what is trained; the same on all ranks.
        """


class SingleDevice(Parallel):
    """One rank."""

    def __init__(self) -> None:
        self.group = SingleProcess()
        self.loss_factor = 1.0

    def place(self, model: nn.Layer) -> nn.Layer:
        """See `Parallel.place`."""
        if isinstance(model, paddle.DataParallel):
            message = "is wrapped for several ranks, but driver=paddle runs on one device"
            raise ConfigError([Problem("driver", message, "driver=paddle_fleet")])
        return model

    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """See `Parallel.training`."""
        return binding.bind(model, "train_step")

    def evaluation(self, model: nn.Layer, binding: Binding) -> Call:
        """See `Parallel.evaluation`."""
        return binding.bind(model, "evaluate_step")

    def begin(self, sync: bool) -> None:
        """Nothing to get ready."""

    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """The gradients are the sum over one rank."""
