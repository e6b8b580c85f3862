"""``expkit verify``: says of each checkpoint whether it is whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from expkit.checkpoint.report import Report, best_of, examine, examine_all, is_checkpoint
from expkit.checkpoint.search import candidates
from expkit.command_line import make_parser, parse, refusal
from expkit.core.errors import CheckpointError
from expkit.run.directory import CHECKPOINTS_DIRECTORY
from expkit.run.status import STATUS_FILE

_DEPTH = 4  # outputs, a day, a sweep, a job
_DESCRIPTION = """\
Reads every checkpoint and compares each of its files with what was written. Changes nothing; a run
may be going on. Exit code: 0 all are whole, 1 one is damaged or there is none, 2 a wrong argument.
"""


def verify(argv: Sequence[str]) -> int:
    """The command: a line for each checkpoint.

    Args:
        argv: the paths of runs, of their ``checkpoints``, of single checkpoints, or of a directory
            of runs.

    Returns:
        The exit code: 0 where each path has a checkpoint and all are whole, else 1.

    Raises:
        ConfigError: a path that is none of these, or an unknown flag.
    """
    parser = make_parser("verify", "PATH [PATH ...]", _DESCRIPTION)
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a run, its checkpoints, one checkpoint, or a directory of runs, such as outputs",
    )
    arguments = parse(parser, argv)
    if arguments.help:
        sys.stdout.write(parser.format_help())
        return 0
    if not arguments.paths:
        raise refusal(parser, "there is no path; allowed: a run, or one of its checkpoints")
    places = []
    for text in arguments.paths:
        path = Path(text)  # a link that is named is meant; those below it are not followed
        found = list(_places(path.resolve() if path.is_symlink() else path))
        if not found:
            what = "is neither a run nor a checkpoint, and no run lies below it"
            raise refusal(parser, f"{text} {what if path.is_dir() else 'is no directory'}")
        places.append(found)
    return max([_verify_all(found) for found in places])


def _places(path: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Where checkpoints can be: directories of them, or single ones. Links are not followed."""
    if not path.is_dir():
        return
    inner = path / CHECKPOINTS_DIRECTORY
    if os.path.lexists(inner) or (path / STATUS_FILE).is_file():
        yield inner
    elif is_checkpoint(path) or candidates(path) or path.name == CHECKPOINTS_DIRECTORY:
        yield path
    elif depth:
        for below in sorted(path.iterdir()):
            if not below.is_symlink():
                yield from _places(below, depth - 1)


def _verify_all(places: Sequence[Path]) -> int:
    """Tell of all checkpoints of one argument."""
    num_whole = num_damaged = 0
    for place in places:
        sys.stdout.write(f"{place}\n")
        try:
            reports = _reports(place)
        except CheckpointError as error:
            sys.stdout.write(f"  {error}\n")
            num_damaged += 1
            continue
        whole = [report for report in reports if not report.damage]
        num_whole += len(whole)
        num_damaged += len(reports) - len(whole)
        for line in _table(reports, whole) if reports else ["  no checkpoint"]:
            sys.stdout.write(line + "\n")
    return 0 if num_whole and not num_damaged else 1


def _reports(place: Path) -> list[Report]:
    if place.is_symlink():
        raise CheckpointError("damaged: it is a link, which is not followed")
    if is_checkpoint(place):
        report = examine(place)
        return [] if report is None else [report]
    return examine_all(place)


def _table(reports: Sequence[Report], whole: Sequence[Report]) -> Iterator[str]:
    """A line for each, in columns."""
    last, best = whole[0] if whole else None, best_of(whole)
    rows = [_row(report, report is last, report is best) for report in reports]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, report in zip(rows, reports, strict=True):
        if report.damage:
            yield f"  {row[0]:<{widths[0]}}  damaged: {report.damage}"
        else:
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width)
            yield ("  " + "  ".join(cells)).rstrip()


def _row(report: Report, is_last: bool, is_best: bool) -> tuple[str, ...]:
    if report.info is None:
        return (report.path.name, *[""] * 7)
    info, name = report.info, (report.monitor or "").removeprefix("-")
    return (
        report.path.name,
        f"step {info.step}",
        f"epoch {info.epoch + 1}",
        f"{name} {info.metrics[name]:.4g}" if name in info.metrics else "",
        _size(report.num_bytes),
        _origin(report),
        "whole",
        ", ".join(["last"] * is_last + ["best"] * is_best),
    )


def _origin(report: Report) -> str:
    """What trained it, as far as it says so."""
    parts = [report.framework] if report.framework else []
    if report.world_size:
        parts.append(f"{report.world_size} rank{'' if report.world_size == 1 else 's'}")
    return ", ".join(parts)


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
