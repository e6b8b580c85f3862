"""First weights as arithmetic: a function of the run's seed and the parameter's path.

Models of different frameworks whose parameters have the same paths therefore start from the same
numbers, and a layer added to a model leaves the first weights of the others as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from expkit.core.seeding import derive_seed

Float32 = NDArray[np.float32]
Shape = tuple[int, ...]


def initial_value(kind: str, path: str, shape: Shape, seed: int) -> Float32:
    """The first value of a parameter.

    Args:
        kind: ``linear`` for a kernel of shape (in, out), ``conv`` for one of shape
            (out, in, *window), ``embedding`` for a table of shape (entries, dimension), ``lstm``
            for the kernels of all four gates, of shape (4 * hidden, in), ``zeros`` or ``ones``.
        path: path of the parameter in its model, such as ``layers.output.weight``; it names the
            random stream.
        shape: shape of the parameter.
        seed: the run's seed.

    Returns:
        A new float32 array.
    """
    if kind not in INITIALIZERS:
        raise ValueError(f"kind is {kind!r}; allowed: {', '.join(INITIALIZERS)}")
    stream = np.random.Generator(np.random.Philox(derive_seed(seed, "init", path)))
    return INITIALIZERS[kind](shape, stream)


def _linear(shape: Shape, stream: np.random.Generator) -> Float32:
    """Uniform in +-sqrt(6 / (in + out)): Glorot and Bengio, AISTATS 2010."""
    fan_in, fan_out = shape
    return _uniform(math.sqrt(6.0 / (fan_in + fan_out)), shape, stream)


def _conv(shape: Shape, stream: np.random.Generator) -> Float32:
    """Uniform in +-sqrt(6 / fan_in), for layers before a ReLU: He et al., ICCV 2015."""
    return _uniform(math.sqrt(6.0 / math.prod(shape[1:])), shape, stream)


def _embedding(shape: Shape, stream: np.random.Generator) -> Float32:
    """Normal with variance 1 / dimension, so that an entry has length 1 on average.

    The choice of the reference implementation of the Transformer (Vaswani et al., NeurIPS 2017).
    """
    return stream.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)


def _lstm(shape: Shape, stream: np.random.Generator) -> Float32:
    """Uniform in +-1 / sqrt(hidden), as the frameworks draw it themselves."""
    return _uniform((shape[0] // 4) ** -0.5, shape, stream)


def _zeros(shape: Shape, _: np.random.Generator) -> Float32:
    return np.zeros(shape, dtype=np.float32)


def _ones(shape: Shape, _: np.random.Generator) -> Float32:
    return np.ones(shape, dtype=np.float32)


def _uniform(bound: float, shape: Shape, stream: np.random.Generator) -> Float32:
    return (stream.random(shape, dtype=np.float32) * 2 - 1) * np.float32(bound)


INITIALIZERS: Mapping[str, Callable[[Shape, np.random.Generator], Float32]] = {
    "linear": _linear,
    "conv": _conv,
    "embedding": _embedding,
    "lstm": _lstm,
    "zeros": _zeros,
    "ones": _ones,
}
