"""A data set that augments at random, and what has been seen of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from expkit.core.events import Callback
from tests.cases.parts import samples


class Drawing:
    """Samples with noise from each generator; the field ``drawn`` holds what was drawn."""

    def __init__(self, n: int, frameworks: Iterable[str] = ()) -> None:
        self.rows, self.frameworks = samples(n), tuple(frameworks)

    def __len__(self) -> int:
        return len(self.rows["y"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = {name: column[index] for name, column in self.rows.items()}
        frameworks = [sys.modules[name].rand([1]).item() for name in self.frameworks]
        drawn = [random.random(), np.random.normal(), *frameworks]
        sample["x"] = sample["x"] + 0.1 * np.array(drawn, np.float32).sum()
        return {**sample, "drawn": np.array(drawn, dtype=np.float64)}


class Noted(Callback):
    """The draws that were trained on, by epoch, and for each generator."""

    def __init__(self) -> None:
        self.drawn: dict[int, list[list[float]]] = {}
        self.steps: list[int] = []

    def batch_start(self, context, batch, indices) -> None:
        self.drawn.setdefault(context.progress.epoch, []).extend(batch.fields["drawn"].tolist())
        self.steps.append(context.progress.step + 1)
