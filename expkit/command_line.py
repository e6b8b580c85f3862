"""How the commands beside an experiment (init, verify, convert) read their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from expkit.core.errors import ConfigError, Problem


def make_parser(command: str, usage: str, description: str) -> argparse.ArgumentParser:
    """A parser of a command's arguments; `parse` uses it.

    Args:
        command: its name.
        usage: what follows the name.
        description: what it does, in sentences.
    """
    parser = argparse.ArgumentParser(
        prog=f"expkit {command}",
        usage=f"expkit {command} {usage}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--help", "-h", action="store_true", help="this text")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line.

    Raises:
        ConfigError: an argument that is not known, or a value that is not allowed.
    """
    try:
        arguments, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        raise refusal(parser, str(error)) from error
    if unknown:
        raise refusal(parser, f"{' '.join(unknown)}: no such argument; --help lists what there is")
    return arguments


def refusal(parser: argparse.ArgumentParser, message: str) -> ConfigError:
    """The error of a command that cannot be carried out as it was given."""
    return ConfigError([Problem(parser.prog, message, f"{parser.prog} --help")])
