"""How ranks train one model together; on one device there is nobody to talk to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from expkit.core.binding import Binding, Call
from expkit.core.collective import Collective, SingleProcess
from expkit.core.errors import ConfigError, Problem
from expkit.drivers.torch.layout import Layout, Whole


class Parallel(ABC):
    """How ranks train one model together.

    In a step the driver calls, for each micro-batch, ``begin``, the training call and ``backward``;
    after the last of the window ``exchange``.

    Attributes:
        group: the ranks.
        layout: which part of each tensor this rank holds.
        loss_factor: losses are multiplied with it, because the exchange divides by it.
    """

    group: Collective
    layout: Layout
    loss_factor: float

    @abstractmethod
    def place(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Bring a model to the device and make it the same on all ranks: that of rank 0.

        Returns:
            The plain model, also where ``model`` is one in a wrapper.
        """

    @abstractmethod
    def training(self, model: nn.Module, binding: Binding) -> Call:
        """The call of a placed model in training."""

    @abstractmethod
    def evaluation(self, model: nn.Module, binding: Binding) -> Call:
        """The call of a placed model in evaluation."""

    @abstractmethod
    def begin(self, sync: bool) -> None:
        """Get ready for the forward of a micro-batch.

        Args:
            sync: whether it is the last one of its window; before that nothing is communicated.
        """

    @abstractmethod
    def backward(self, total: Tensor) -> None:
        """Add the gradients of a scalar."""

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
        self.layout = Whole(self.group)
        self.loss_factor = 1.0

    def place(self, model: nn.Module, device: torch.device) -> nn.Module:
        """See `Parallel.place`."""
        if isinstance(model, DistributedDataParallel):
            message = "is wrapped for several ranks, but driver=torch runs on one device"
            raise ConfigError([Problem("driver", message, "driver=torch_ddp")])
        return model.to(device)

    def training(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.training`."""
        return binding.bind(model, "train_step")

    def evaluation(self, model: nn.Module, binding: Binding) -> Call:
        """See `Parallel.evaluation`."""
        return binding.bind(model, "evaluate_step")

    def begin(self, sync: bool) -> None:
        """Nothing to get ready."""

    def backward(self, total: Tensor) -> None:
        """See `Parallel.backward`."""
        total.backward()

    def exchange(self, parameters: Sequence[Tensor]) -> None:
        """The gradients are the sum over one rank."""
