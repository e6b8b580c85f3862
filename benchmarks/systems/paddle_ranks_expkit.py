"""expkit on Paddle with several ranks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import paddle

from benchmarks.systems.expkit_trainer import fit
from benchmarks.systems.paddle_network import final_loss, network
from benchmarks.work import Outcome, Work, samples
from expkit.drivers.paddle.fleet import PaddleFleetDriver


def train(work: Work, directory: Path) -> Outcome:
    """Train as one of the ranks."""
    model = network(work)
    outcome = fit(work, directory, PaddleFleetDriver("cpu"), model)
    x, y, _, _ = samples(work)
    final = final_loss(model, paddle.to_tensor(x), paddle.to_tensor(y))
    return dataclasses.replace(outcome, final=final)
