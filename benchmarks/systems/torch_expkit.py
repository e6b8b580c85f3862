"""expkit on torch."""

from __future__ import annotations

from pathlib import Path

from benchmarks.systems.expkit_trainer import fit
from benchmarks.systems.torch_network import Network
from benchmarks.work import Outcome, Work
from expkit.drivers.torch import TorchDriver


def train(work: Work, directory: Path) -> Outcome:
    """Train on one CPU."""
    return fit(work, directory, TorchDriver("cpu"), Network())
