"""One optimizer step of a small network: what the loop around the arithmetic costs."""

from __future__ import annotations

from benchmarks.report import Options, Report
from benchmarks.sections.training import measure_training
from benchmarks.work import Work

TARGETS = {"torch_expkit": 0.65, "paddle_expkit": 0.85}


def measure(options: Options) -> Report:
    """30 epochs of the digits; the loss is read every 10 steps."""
    title = "digits, network 64-128-10, Adam, batches of 32, loss read every 10 steps"
    return measure_training("step", title, Work(), TARGETS, rounds=8, options=options)
