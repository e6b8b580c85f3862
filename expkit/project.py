"""``expkit init``: lays out a project that runs as it is, to be changed from there."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from expkit.command_line import make_parser, parse, refusal
from expkit.core.errors import ConfigError, Problem

_DESCRIPTION = """\
Lays out a project that runs as it is: a model, data, an experiment, a README. Overwrites nothing.
"""
_SUFFIXES = (".py", ".yaml", ".md")


def init(argv: Sequence[str]) -> int:
    """The command: lays out a project and says how to run it.

    Args:
        argv: at most one argument, the directory; the present one where there is none.

    Returns:
        The exit code.

    Raises:
        ConfigError: wrong arguments, or see `init_project`.
    """
    parser = make_parser("init", "[DIRECTORY]", _DESCRIPTION)
    parser.add_argument(
        "directories", nargs="*", metavar="DIRECTORY", help="made if it is not there (default: .)"
    )
    arguments = parse(parser, argv)
    if arguments.help:
        sys.stdout.write(parser.format_help())
        return 0
    if len(arguments.directories) > 1:
        raise refusal(parser, f"got {' '.join(argv)!r}; allowed: at most one directory")
    directory = Path(*arguments.directories)
    for path in init_project(directory):
        sys.stdout.write(f"wrote {path}\n")
    change = f"cd {shlex.quote(str(directory))} && " if arguments.directories else ""
    sys.stdout.write(f"\nRun it:  {change}python -m expkit experiment=my_experiment\n")
    return 0


def init_project(directory: Path) -> list[Path]:
    """Write a project with a model, data, an experiment and a README.

    Args:
        directory: where; made if it is not there.

    Returns:
        The files that were written.

    Raises:
        ConfigError: a file is there already, and then nothing is written; or the directory can't be
            written.
    """
    template = Path(str(files("expkit") / "templates" / "project"))
    sources = sorted(path for path in template.rglob("*") if path.suffix in _SUFFIXES)
    places = {source: directory / source.relative_to(template) for source in sources}
    there = [str(place) for place in places.values() if os.path.lexists(place)]
    if there:
        message = f"nothing is overwritten, and there is already: {', '.join(there)}"
        raise ConfigError([Problem("init", message, "expkit init another_directory")])
    try:
        for source, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as file:
                file.write(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            [Problem("init", f"{error.filename} can't be written: {error.strerror}")]
        ) from error
    return list(places.values())
