"""What the NumPy driver takes as a model."""

from __future__ import annotations

from abc import ABC
from typing import final

import numpy as np

from expkit.core.seeding import derive_seed
from expkit.models.initializers import initial_value
from expkit.models.numpy.layers import Array, Layer


class Module(Layer, ABC):
    """A model: a layer that has first weights, buffers and a random generator.

    A model of one's own gives ``forward`` and ``backward``, mostly by calling those of its layers::

        class Regression(Module):
            def __init__(self, in_features: int) -> None:
                super().__init__()
                self.linear = Linear(in_features, 1)

            def forward(self, x):
                return self.linear.forward(x)

            def backward(self, grad_output):
                return self.linear.backward(grad_output)

    Of a model's ``backward`` only the gradients count that it adds to the parameters.

    Attributes:
        rng: source of all randomness in training, such as dropout masks; its state is part of a
            checkpoint.
        buffers: arrays by name that are saved with the parameters but not trained; change them in
            place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.Generator(np.random.Philox(0))
        self.buffers: dict[str, Array] = {}

    @final
    def named_buffers(self) -> dict[str, Array]:
        """Arrays that are saved but not trained, by name."""
        return dict(self.buffers)

    @final
    def initialize(self, seed: int) -> None:
        """Set the parameters by (seed, path), and the generator by the seed."""
        for path, parameter in self.named_parameters().items():
            value = parameter.value
            value[...] = initial_value(parameter.kind, path, value.shape, seed)
        stream = np.random.Philox(derive_seed(seed, "model"))
        self.rng.bit_generator.state = stream.state
