"""``python -m benchmarks run [section ...]``."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path

from benchmarks.report import Options, Report

SECTIONS = {
    "step": "one optimizer step of a small network",
    "epoch": "the same with evaluation, TensorBoard and the best checkpoint each epoch",
    "checkpoint": "saving a model of 415 MB with its optimizer while it is trained",
    "ranks": "two processes that train one model",
    "samplers": "a shuffled order of 4,096 to a million million samples",
    "loader": "shuffled batches of a data set in memory",
    "start": "from the command to the first optimizer step",
}
RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Measure sections and write their tables; 1 where some work was not equal or failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="the sections")
    run = verbs.add_parser("run", help="measure")
    run.add_argument("sections", nargs="*", metavar="section", help="all where none is named")
    run.add_argument("--rounds", type=int, help="paired rounds; each section has its own default")
    run.add_argument("--only", default="", help="systems to measure, separated by commas")
    run.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    run.add_argument("--results", type=Path, default=RESULTS, help="where the records go")
    given = parser.parse_args(arguments)
    logging.basicConfig(level="INFO", format="%(message)s")
    if given.verb == "list":
        for name, what in SECTIONS.items():
            print(f"{name:12}{what}")
        return 0
    unknown = [name for name in given.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error(f"--rounds is {given.rounds}; allowed: 1 or more")
    only = frozenset(name for name in given.only.split(",") if name)
    options = Options(rounds=given.rounds, quick=given.quick, only=only)
    reports: list[Report] = []
    for name in given.sections or SECTIONS:
        report = importlib.import_module(f"benchmarks.sections.{name}").measure(options)
        report.save(given.results)
        print(f"\n{report.text()}\n", flush=True)
        reports.append(report)
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
