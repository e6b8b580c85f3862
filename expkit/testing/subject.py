"""What a subclass supplies, and what facts make of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from expkit.core.driver import Driver
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD


class Subject(ABC):
    """A driver and a model that facts are about."""

    @abstractmethod
    def make_driver(self, **options: Any) -> Driver:
        """A new driver on the CPU, with these options of its constructor."""

    @abstractmethod
    def make_model(
        self, *, dropout: float = 0.0, norm: str = "none", hidden: Sequence[int] = (5,)
    ) -> Any:
        """A perceptron with tanh for the samples of `steps.batch_of`.

        It has `steps.FEATURES` inputs named ``x``, `steps.CLASSES` outputs, and a method
        ``initialize(seed)`` that sets its parameters.

        Args:
            dropout: share of activations dropped after each hidden layer.
            norm: ``none``, or ``batch`` for batch normalisation before each activation.
            hidden: width of each hidden layer.
        """

    def prepared(
        self, optimizer: Any = None, loss: Any = None, seed: int = 0, **model: Any
    ) -> Driver:
        """A driver with a model, by default for reading gradients off a step: rate 1, no momentum.

        Args:
            optimizer: see `Driver.prepare`.
            loss: see `Driver.prepare`.
            seed: of the driver and of the parameters.
            **model: see ``make_model``.
        """
        driver = self.make_driver()
        driver.setup(seed)
        made = self.make_model(**model)
        made.initialize(seed)
        driver.prepare(made, optimizer or SGD(lr=1.0), loss or CrossEntropy())
        return driver
