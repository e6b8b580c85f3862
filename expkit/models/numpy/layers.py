"""Layers whose gradients are written out by hand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


@final
class Parameter:
    """An array that training changes.

    Attributes:
        value: the numbers, float32.
        grad: gradient of the loss, summed over backward passes; None before the first.
        kind: how `expkit.models.initializers.initial_value` draws it.
        trainable: False freezes it: it gets no gradient.
    """

    __slots__ = ("grad", "kind", "trainable", "value")

    def __init__(self, value: Array, kind: str = "zeros", trainable: bool = True) -> None:
        self.value = value
        self.grad: Array | None = None
        self.kind = kind
        self.trainable = trainable

    def accumulate(self, grad: Array) -> None:
        """Add to the gradient."""
        self.grad = grad if self.grad is None else self.grad + grad


class Layer(ABC):
    """A function with parameters that knows its own gradient.

    Parameters and inner layers are found among the attributes and are named after them; a subclass
    calls ``super().__init__()`` first.
    """

    def __init__(self) -> None:
        self._training = True

    @property
    def training(self) -> bool:
        """Whether ``forward`` prepares for ``backward``; setting it reaches all layers inside."""
        return self._training

    @training.setter
    def training(self, value: bool) -> None:
        self._training = value
        for child in vars(self).values():
            if isinstance(child, Layer):
                child.training = value

    def named_parameters(self) -> dict[str, Parameter]:
        """Parameters by path, such as ``layers.output.weight``, in the order of their making."""
        found: dict[str, Parameter] = {}
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                found[name] = value
            elif isinstance(value, Layer):
                inner = value.named_parameters()
                found.update({f"{name}.{path}": parameter for path, parameter in inner.items()})
        return found

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """The value at ``x``; in training, keep what ``backward`` needs."""

    @abstractmethod
    def backward(self, grad_output: Array) -> Array:
        """Go back through the last ``forward``.

        Args:
            grad_output: gradient of the loss by what ``forward`` returned.

        Returns:
            The gradient by what ``forward`` was given; those by the parameters are added to theirs.
        """


@final
class Linear(Layer):
    """x @ weight + bias, with the weight in the shape (in, out)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = Parameter(np.zeros((in_features, out_features), np.float32), kind="linear")
        self.bias = Parameter(np.zeros(out_features, np.float32))
        self._x: Array | None = None

    def forward(self, x: Array) -> Array:
        """Map (N, in) to (N, out)."""
        # An evaluation has no backward: keeping its batches would only cost memory.
        self._x = x if self.training else None
        return np.asarray(x @ self.weight.value + self.bias.value)

    def backward(self, grad_output: Array) -> Array:
        """Map (N, out) to (N, in)."""
        x = _kept(self._x)
        if self.weight.trainable:
            self.weight.accumulate(x.T @ grad_output)
        if self.bias.trainable:
            self.bias.accumulate(grad_output.sum(axis=0))
        return np.asarray(grad_output @ self.weight.value.T)


@final
class ReLU(Layer):
    """The greater of x and 0."""

    def __init__(self) -> None:
        super().__init__()
        self._positive: Array | None = None

    def forward(self, x: Array) -> Array:
        """Entry by entry."""
        self._positive = x > 0 if self.training else None
        return np.maximum(x, 0)

    def backward(self, grad_output: Array) -> Array:
        """Pass where the input was above 0."""
        return np.asarray(grad_output * _kept(self._positive))


@final
class Tanh(Layer):
    """Hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__()
        self._y: Array | None = None

    def forward(self, x: Array) -> Array:
        """Entry by entry."""
        y = np.asarray(np.tanh(x))
        self._y = y if self.training else None
        return y

    def backward(self, grad_output: Array) -> Array:
        """Multiply by 1 - tanh(x)^2."""
        return np.asarray(grad_output * (1 - _kept(self._y) ** 2))


@final
class Gelu(Layer):
    """x times the standard normal distribution function at x (Hendrycks and Gimpel, 2016).

    Exact, by the error function of the standard library: right rather than fast.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slope: Array | None = None

    def forward(self, x: Array) -> Array:
        """Entry by entry."""
        distribution = (0.5 * (1 + _erf(x * math.sqrt(0.5)))).astype(x.dtype)
        if self.training:
            density = np.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
            self._slope = distribution + x * density
        else:
            self._slope = None
        return np.asarray(x * distribution)

    def backward(self, grad_output: Array) -> Array:
        """Multiply by the distribution function plus x times the density."""
        return np.asarray(grad_output * _kept(self._slope))


@final
class Dropout(Layer):
    """Drops a share of the entries in training and scales up the rest.

    Source: Srivastava et al., JMLR 2014.

    Args:
        rate: the share, from 0 to below 1.
        rng: generator of the masks; the model's own (`expkit.models.numpy.Module.rng`).
    """

    def __init__(self, rate: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.rate = rate
        self._rng = rng
        self._mask: Array | None = None

    def forward(self, x: Array) -> Array:
        """In evaluation ``x`` itself."""
        if not self.training:
            self._mask = None
            return x
        kept = self._rng.random(x.shape, dtype=np.float32) >= self.rate
        self._mask = kept.astype(x.dtype) * x.dtype.type(1 / (1 - self.rate))
        return np.asarray(x * self._mask)

    def backward(self, grad_output: Array) -> Array:
        """Drop and scale alike."""
        return np.asarray(grad_output * _kept(self._mask))


@final
class Sequential(Layer):
    """One layer after the other.

    Args:
        layers: name -> layer, in order; the names appear in the paths of the parameters.
    """

    def __init__(self, layers: Mapping[str, Layer]) -> None:
        super().__init__()
        self._order = tuple(layers.values())
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Array) -> Array:
        """Through all layers."""
        for layer in self._order:
            x = layer.forward(x)
        return x

    def backward(self, grad_output: Array) -> Array:
        """Back through all layers."""
        for layer in reversed(self._order):
            grad_output = layer.backward(grad_output)
        return grad_output


def _kept(array: Array | None) -> Array:
    if array is None:
        raise RuntimeError("backward() without forward() in training mode before it")
    return array
