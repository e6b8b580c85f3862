"""``expkit verify``: says of each checkpoint whether it is whole."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from expkit.checkpoint.manifest import MANIFEST_FILE
from expkit.checkpoint.report import Report, examine, examine_all, is_checkpoint
from expkit.checkpoint.search import candidates
from expkit.command_line import make_parser, parse, printable, refusal
from expkit.core.errors import CheckpointError
from expkit.run.directory import CHECKPOINTS_DIRECTORY
from expkit.run.status import STATUS_FILE

Place = tuple[Path, str]
"""Where checkpoints can be, and why that cannot be told."""

_DEPTH = 4  # outputs, a day, a sweep, a job
_NUM_CELLS = 8
_DESCRIPTION = """\
Reads every checkpoint as it is read to go on from it, and compares each of its files with what was
written. Changes nothing; a run may be going on.
Exit code: 0 all are whole, 1 one is damaged or there is none, 2 a wrong argument.
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
    places = [_places_of(parser, text) for text in arguments.paths]
    return max([_verify_all(found) for found in places])


def _places_of(parser: argparse.ArgumentParser, text: str) -> list[Place]:
    """Where checkpoints can be that an argument means.

    Raises:
        ConfigError: nowhere.
    """
    path = Path(text)
    try:
        if path.is_symlink():  # one that is named is meant; those below it are not followed
            path = Path(os.path.realpath(path))
        is_directory = path.is_dir()
    except OSError as error:
        raise refusal(parser, f"{text} cannot be looked at: {error.strerror}") from error
    if not is_directory:
        raise refusal(parser, f"{text} is no directory")
    places = list(_places(path)) or ([(path, "")] if is_checkpoint(path) else [])
    if not places:
        what = "is neither a run nor a checkpoint, and no run lies below it"
        raise refusal(parser, f"{text} {what}")
    return places


def _places(path: Path, depth: int = _DEPTH) -> Iterator[Place]:
    """Where checkpoints can be: directories of them, or single ones. Links are not followed."""
    inner = path / CHECKPOINTS_DIRECTORY
    below: list[Path] = []
    try:
        if os.path.lexists(inner) or (path / STATUS_FILE).is_file():
            yield inner, ""
        elif (
            path.name == CHECKPOINTS_DIRECTORY
            or (path / MANIFEST_FILE).is_file()
            or candidates(path)
        ):
            yield path, ""
        elif depth:
            below = _directories(path)
    except FileNotFoundError:
        return  # gone meanwhile
    except OSError as error:
        yield path, f"cannot be looked into: {error.strerror}"
    except CheckpointError as error:
        yield path, str(error)
    for each in below:
        yield from _places(each, depth - 1)


def _directories(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return sorted(Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False))


def _verify_all(places: Sequence[Place]) -> int:
    """Tell of all checkpoints of one argument, each when it is known."""
    num_whole = num_damaged = 0
    for place, hindrance in places:
        _tell(str(place))
        widths = [0] * _NUM_CELLS
        num_before = num_whole + num_damaged
        try:
            for report in _reports(place, hindrance):
                num_whole += not report.damage
                num_damaged += bool(report.damage)
                _tell("  " + _line(report, widths))
        except CheckpointError as error:
            num_damaged += 1
            _tell(f"  {error}")
        if num_whole + num_damaged == num_before:
            _tell("  no checkpoint")
    return 0 if num_whole and not num_damaged else 1


def _tell(line: str) -> None:
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def _reports(place: Path, hindrance: str) -> Iterator[Report]:
    if hindrance:
        raise CheckpointError(hindrance)
    if place.is_symlink():
        raise CheckpointError("damaged: it is a link, which is not followed")
    if not is_checkpoint(place):
        yield from examine_all(place)
    elif (report := examine(place)) is not None:
        yield report


def _line(report: Report, widths: list[int]) -> str:
    """The cells of a checkpoint, each below that of the line before, and those widths."""
    cells = [report.path.name, *_cells(report)]
    for place, cell in enumerate(cells):
        widths[place] = max(widths[place], len(cell))
    if report.damage:
        return f"{cells[0]:<{widths[0]}}  damaged: {report.damage}"
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True) if width)
    return "  ".join(padded).rstrip()


def _cells(report: Report) -> list[str]:
    if report.info is None:
        return []
    info, name = report.info, (report.monitor or "").removeprefix("-")
    return [
        f"step {info.step}",
        f"epoch {info.epoch + 1}" if info.epoch >= 0 else "",
        f"{name} {info.metrics[name]:<6.4g}" if name in info.metrics else "",
        _size(report.num_bytes),
        _origin(report),
        "whole",
        ", ".join(["last"] * report.is_last + ["best"] * report.is_best),
    ]


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
