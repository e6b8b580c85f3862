"""Tensors full of one number, kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

_MOST = 64
"""Loss scales and odd batch sizes come and go."""


class Filled:
    """Makes each tensor once: making it anew would cost as much as a small layer."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Tensor] = {}

    def __call__(self, shape: Sequence[int], value: float, like: Tensor) -> Tensor:
        """A tensor of ``shape``, full of ``value``, of the type of ``like``; not to be written."""
        key = (tuple(shape), value, like.dtype)
        tensor = self._kept.get(key)
        if tensor is None:
            if len(self._kept) >= _MOST:
                self._kept.clear()
            tensor = self._kept[key] = paddle.full(list(shape), value, dtype=like.dtype)
        return tensor
