"""Shuffled batches of arrays in memory: samples per second."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from benchmarks.pairs import Record, Worker, WorkError
from benchmarks.reads import CHECK, FEATURES, READ, READERS, Reading
from benchmarks.report import Options, Report, median_of

log = logging.getLogger(__name__)

COLUMNS = (
    "reader",
    "pairs",
    "samples/s / torch_loader",
    "per processor second / torch_loader",
    "target",
    "million samples/s",
    "first batch ms",
)
BASELINE = "torch_loader"
TARGETS = {"torch_expkit": 30, "paddle_expkit": 12}
_ROUNDS = 7
_QUICK = Reading(samples=20_000)


def measure(options: Options) -> Report:
    """Each reader right beside torch's DataLoader, in processes that stay."""
    work = _QUICK if options.quick else Reading()
    title = f"{work.samples:,} x {FEATURES} float32 in memory, batches of {work.batch_size}"
    report = Report("loader", f"{title}, shuffled", COLUMNS)
    rounds = options.rounds or (1 if options.quick else _ROUNDS)
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in [BASELINE, *options.choose([name for name in READERS if name != BASELINE])]:
            try:
                workers[name] = Worker(name, work, module="benchmarks.reads")
                stack.callback(workers[name].close)
                check = workers[name].train(CHECK)
                report.problems += [
                    f"{name}: {what} is not so" for what, is_so in check.items() if not is_so
                ]
                pairs = [
                    _pair(workers[name], workers[BASELINE], number) for number in range(rounds)
                ]
            except WorkError as error:
                report.problems.append(f"{name}: {error}")
                continue
            report.records[name] = pairs
            report.rows.append(row(name, pairs))
            log.info("%s measured", name)
    return report


def _pair(own: Worker, other: Worker, number: int) -> tuple[Record, Record]:
    """Which of the two goes first alternates."""
    if number % 2:
        record = own.train(READ)
        return record, other.train(READ)
    record = other.train(READ)
    return own.train(READ), record


def row(name: str, pairs: list[tuple[Record, Record]]) -> list[str]:
    """A line of the table; see `COLUMNS`."""
    ratios = [
        median_of([own[key] / other[key] for own, other in pairs], "{:.1f}")
        for key in ("samples_s", "samples_cpu_s")
    ]
    return [
        name,
        str(len(pairs)),
        *ratios,
        f">= {TARGETS[name]}" if name in TARGETS else "",
        median_of([own["samples_s"] / 1e6 for own, _ in pairs], "{:.2f}"),
        median_of([1e3 * own["first_s"] for own, _ in pairs], "{:.1f}"),
    ]
