"""The global random number generators: of Python, NumPy, and of torch and Paddle if imported."""

from __future__ import annotations

import ctypes
import random
import sys
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

_WORDS_BYTES = 4 * 624


class Generator(ABC):
    """A global generator."""

    @abstractmethod
    def state(self) -> Any:
        """What `load` takes back."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Be again as it was."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Begin with a seed of 63 bits."""

    @abstractmethod
    def mark(self) -> Any:
        """A value that is another one as soon as something has been drawn."""


class _Python(Generator):
    def state(self) -> Any:
        return random.getstate()

    def load(self, state: Any) -> None:
        random.setstate(state)

    def seed(self, seed: int) -> None:
        random.seed(seed)

    def mark(self) -> Any:
        return random.getstate()


class _NumPy(Generator):
    """NumPy's functions for its state are slow: its memory is read where it is as they say.

    What that does not tell is whether a normal number is kept back, for the second half of a pair
    comes without a draw. So one is drawn: if the memory stays as it was, that one had been kept.
    """

    def __init__(self) -> None:
        self._is_plain: bool | None = None

    def state(self) -> Any:
        generator: Any = np.random.mtrand.get_bit_generator()
        if not (isinstance(generator, np.random.MT19937) and self._knows_memory(generator)):
            return np.random.get_state(legacy=False)
        memory = _memory(generator)
        number = np.random.standard_normal()
        if _memory(generator) != memory:
            self.load(memory)
            return memory
        state: Any = np.random.get_state(legacy=False)
        state |= {"has_gauss": 1, "gauss": number}
        self.load(state)
        return state

    def load(self, state: Any) -> None:
        if isinstance(state, bytes):
            np.random.seed(0)  # keeps no number back
            generator: Any = np.random.mtrand.get_bit_generator()
            ctypes.memmove(generator.ctypes.state_address, state, len(state))
        else:
            np.random.set_state(state)

    def seed(self, seed: int) -> None:
        np.random.seed(seed & 0xFFFFFFFF)

    def mark(self) -> Any:
        state = self.state()
        return state if isinstance(state, bytes) else repr(state)

    def _knows_memory(self, generator: Any) -> bool:
        """Whether the memory of the generator is its words and its position, and nothing else."""
        if self._is_plain is None:
            state = generator.state["state"]
            told = state["key"].tobytes() + state["pos"].to_bytes(4, sys.byteorder)
            self._is_plain = _memory(generator) == told
        return self._is_plain


def _memory(generator: Any) -> bytes:
    return ctypes.string_at(generator.ctypes.state_address, _WORDS_BYTES + 4)


class _Torch(Generator):
    """That of the processor."""

    def __init__(self) -> None:
        self._generator = sys.modules["torch"].default_generator

    def state(self) -> Any:
        return self._generator.get_state()

    def load(self, state: Any) -> None:
        self._generator.set_state(state)

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def mark(self) -> Any:
        return self._generator.get_state().numpy().tobytes()


class _Paddle(Generator):
    """Those of all devices: a data set may draw on a GPU without meaning it."""

    def __init__(self) -> None:
        self._paddle = sys.modules["paddle"]

    def state(self) -> Any:
        return self._paddle.get_rng_state()

    def load(self, state: Any) -> None:
        self._paddle.set_rng_state(state)

    def seed(self, seed: int) -> None:
        self._paddle.seed(seed)

    def mark(self) -> Any:
        """The next number, put back; of a GPU nothing is known but that it may have drawn."""
        if self._paddle.is_compiled_with_cuda():
            return object()
        generator = self._paddle.framework.core.default_cpu_generator()
        state = generator.get_state()
        number = generator.random()
        generator.set_state(state)
        return number


_HOST: tuple[Generator, ...] = (_Python(), _NumPy())
_FRAMEWORKS = {"torch": _Torch, "paddle": _Paddle}
_found: dict[str, Generator] = {}


def generators() -> tuple[Generator, ...]:
    """All of them; those of a framework only where it is imported already."""
    for name, kind in _FRAMEWORKS.items():
        if name in sys.modules and name not in _found:
            _found[name] = kind()
    return (*_HOST, *_found.values())
