"""A checkpoint: how long training stands still for it, and what it costs in all."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from benchmarks.pairs import Pairs, Record, Worker, WorkError
from benchmarks.report import Options, Report, median_of
from benchmarks.saver import SUBJECTS, Saving

log = logging.getLogger(__name__)

COLUMNS = (
    "way",
    "against",
    "pairs",
    "stands still ms",
    "stands still / other",
    "its processor time / other",
    "lost in all / other",
    "complete / other",
    "targets",
    "MB",
)
RATIOS = ("stall_s", "stall_cpu_s", "lost_s", "done_s")
_NUM_BYTES, _QUICK_BYTES = 415_000_000, 40_000_000
_ROUNDS = 5
_PART_OF_THE_COPY = 0.9  # what expkit must have written at least, of what is copied


@dataclass(frozen=True)
class Comparison:
    """A way to save beside another one.

    Attributes:
        way, other: see `benchmarks.saver.Saver`.
        targets: greatest ratios that are aimed at, by what is compared.
    """

    way: str
    other: str
    targets: dict[str, float]


COMPARISONS = (
    Comparison("copy", "copy", {}),
    Comparison("save_fsync", "save", {}),
    Comparison("expkit", "copy", {"stall_s": 1.30}),
    Comparison("expkit", "save", {"stall_s": 0.35, "lost_s": 1.00}),
    Comparison("expkit_blocking", "write_fsync", {"done_s": 1.05}),
)


def measure(options: Options) -> Report:
    """Each way right beside the one that it is compared with, for each framework."""
    num_bytes = _QUICK_BYTES if options.quick else _NUM_BYTES
    title = f"{num_bytes / 1e6:.0f} MB, model and Adam, while training goes on"
    report = Report("checkpoint", title, COLUMNS)
    rounds = options.rounds or (1 if options.quick else _ROUNDS)
    for framework in options.choose(list(SUBJECTS)):
        try:
            pairs = _pairs(framework, Saving(num_bytes), rounds)
        except WorkError as error:
            report.problems.append(f"{framework}: {error}")
            continue
        report.records[framework] = pairs
        for comparison in COMPARISONS:
            found = pairs[_key(comparison)]
            report.rows.append(row(framework, comparison, found))
            report.problems += _missing(framework, comparison, found, num_bytes)
    return report


def _pairs(framework: str, saving: Saving, rounds: int) -> Pairs:
    """Which of the two goes first alternates; the first round of each way is not measured."""
    pairs: Pairs = {_key(comparison): [] for comparison in COMPARISONS}
    worker = Worker(framework, saving, module="benchmarks.saver")
    try:
        for way in {name: None for one in COMPARISONS for name in (one.way, one.other)}:
            worker.train(way)
        for number in range(rounds):
            for one in COMPARISONS:
                if number % 2:
                    own, other = worker.train(one.way), worker.train(one.other)
                else:
                    other, own = worker.train(one.other), worker.train(one.way)
                pairs[_key(one)].append((own, other))
            log.info("%s: %d of %d rounds", framework, number + 1, rounds)
    finally:
        worker.close()
    return pairs


def _key(comparison: Comparison) -> str:
    return f"{comparison.way} / {comparison.other}"


def row(framework: str, comparison: Comparison, pairs: list[tuple[Record, Record]]) -> list[str]:
    """A line of the table; see `COLUMNS`."""
    ratios = [median_of([own[key] / other[key] for own, other in pairs]) for key in RATIOS]
    names = {"stall_s": "stands still", "lost_s": "lost in all", "done_s": "complete"}
    targets = [f"{names[key]} <= {most:.2f}" for key, most in comparison.targets.items()]
    return [
        f"{framework}_{comparison.way}",
        comparison.other,
        str(len(pairs)),
        median_of([1e3 * own["stall_s"] for own, _ in pairs], "{:.0f}"),
        *ratios,
        ", ".join(targets),
        f"{pairs[-1][0]['num_bytes'] / 1e6:.0f}",
    ]


def _missing(
    framework: str, comparison: Comparison, pairs: list[tuple[Record, Record]], num_bytes: int
) -> list[str]:
    """Where a way that writes has written less than there is."""
    least = min(own["num_bytes"] for own, _ in pairs)
    if comparison.way == "copy" or least >= _PART_OF_THE_COPY * num_bytes:
        return []
    return [f"{framework}_{comparison.way}: {least} bytes written in place of {num_bytes}"]
