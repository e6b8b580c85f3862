"""expkit on torch with several ranks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from benchmarks.systems.expkit_trainer import fit
from benchmarks.systems.torch_network import final_loss, network
from benchmarks.work import Outcome, Work, samples
from expkit.drivers.torch.ddp import TorchDDPDriver


def train(work: Work, directory: Path) -> Outcome:
    """Train as one of the ranks."""
    model = network(work)
    outcome = fit(work, directory, TorchDDPDriver("cpu"), model)
    x, y, _, _ = map(torch.from_numpy, samples(work))
    return dataclasses.replace(outcome, final=final_loss(model, x, y))
