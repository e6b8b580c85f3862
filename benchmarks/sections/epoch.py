"""An epoch of a small network with all that belongs to it."""

from __future__ import annotations

from benchmarks.report import Options, Report
from benchmarks.sections.training import measure_training
from benchmarks.work import Work

TARGETS = {"torch_expkit": 0.65, "paddle_expkit": 0.75}


def measure(options: Options) -> Report:
    """As `step`, with accuracy on held-out samples, scalars and checkpoints."""
    title = "the same with evaluation, TensorBoard and the best checkpoint each epoch"
    work = Work(evaluates=True)
    return measure_training("epoch", title, work, TARGETS, rounds=8, options=options)
