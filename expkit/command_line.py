"""What the commands beside an experiment (init, verify, convert) read and print."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from expkit.core.errors import ConfigError, Problem

_PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)$)(?:[a-z_/]|\.{1,2}/)[\w./+-]*", re.A | re.I)
"""What an override may hold unquoted, and is read as that text: no number, no word for a value."""


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
        ConfigError: an argument that is not known or empty, or a value that is not allowed.
    """
    try:
        arguments, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        raise refusal(parser, str(error)) from error
    if unknown:
        raise refusal(parser, f"{' '.join(unknown)}: no such argument; --help lists what there is")
    for name, value in vars(arguments).items():
        for text in value if isinstance(value, list) else [value]:
            if text == "":
                raise refusal(parser, f"{name} is empty; the present directory is written as .")
            if isinstance(text, str) and "\0" in text:
                raise refusal(parser, f"{name} {text!r} holds a NUL, which no path does")
    return arguments


def refusal(parser: argparse.ArgumentParser, message: str) -> ConfigError:
    """The error of a command that cannot be carried out as it was given."""
    return ConfigError([Problem(parser.prog, message, f"{parser.prog} --help")])


def override(key: str, value: str) -> str:
    """An override that sets a key to a text, whatever the text holds."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    doubled = re.sub(r'(\\+)(?="|\Z)', r"\1\1", value)  # elsewhere a backslash is itself
    return f'{key}="' + doubled.replace('"', '\\"') + '"'


def printable(text: str) -> str:
    """A text from a file as one line that does nothing to a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
