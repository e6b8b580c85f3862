"""Data of my own: NumPy arrays by field name, first axis = samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def spirals(num_samples: int = 2000, noise: float = 0.02, split_seed: int = 0) -> dict[str, Arrays]:
    """Points on two interleaved spirals, and which of them each point lies on."""
    random = np.random.default_rng(split_seed)
    y = random.integers(0, 2, num_samples)
    turn = 3 * np.pi * np.sqrt(random.random(num_samples))
    angle = turn + np.pi * y
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (turn / (3 * np.pi))[:, None]
    x += random.normal(0, noise, x.shape)
    num_train = num_samples * 4 // 5
    x, y = x.astype(np.float32), y.astype(np.int64)
    return {
        "train": {"x": x[:num_train], "y": y[:num_train]},
        "eval": {"x": x[num_train:], "y": y[num_train:]},
    }
