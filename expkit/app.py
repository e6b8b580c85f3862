"""The command line: checks it as a whole, then makes run directories and runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from expkit.core.errors import ConfigError, ExpkitError, Problem
from expkit.launch.environment import find_place

# Frameworks, Hydra and NumPy are imported where they are needed: help and a refused config shall
# come at once.

INTERRUPTED = 130


def run_command(argv: Sequence[str]) -> int:
    """Carry out a command line.

    Args:
        argv: the arguments, without the program's name.

    Returns:
        The exit code: 0 success, 1 a failed run, 2 a command that cannot be run, 130 or 143 after a
            stop signal.
    """
    here = str(Path.cwd())
    if here not in sys.path[:1]:  # the user's own modules, also for the console script
        sys.path.insert(0, here)
    try:
        command = COMMANDS.get(argv[0]) if argv else None
        return _experiment(argv) if command is None else command(argv[1:])
    except ConfigError as error:
        return _refuse(error)
    except ExpkitError as error:
        _tell(f"expkit: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _experiment(argv: Sequence[str]) -> int:
    """Everything that is not a command of its own: overrides, and Hydra's flags."""
    arguments = _parse(argv)
    if arguments.help:
        from expkit.config.help import help_text

        sys.stdout.write(help_text(arguments.config_dir) + "\n")
        return 0
    if arguments.version:
        from expkit.version import __version__

        sys.stdout.write(f"expkit {__version__}\n")
        return 0
    from expkit.lineage import with_inherited

    overrides = with_inherited(arguments.overrides, arguments.config_dir)
    if arguments.shows:
        from expkit.config.handover import for_hydra, hand_to_hydra

        flags = [text for text in argv if text not in arguments.overrides]
        hand_to_hydra([*flags, *map(for_hydra, overrides)], lambda _: None)
        return 0
    from expkit.config.schema import is_distributed
    from expkit.config.validation import check

    composition = check(overrides, config_dir=arguments.config_dir, multirun=arguments.multirun)
    for note in composition.notes:
        _tell(f"note: {note}")
    place = find_place()
    if place is not None and (place.world_size > 1 or is_distributed(composition.config)):
        from expkit.rank import run_in_place

        return run_in_place(composition, argv, place, arguments.multirun)
    if arguments.multirun:
        from expkit.sweep import run_sweep

        return run_sweep(composition, argv, arguments.config_dir)
    from expkit.job import make_job
    from expkit.runner import carry_out

    job = make_job(composition, argv)
    return 0 if job is None else carry_out(job).exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """The flags, which are Hydra's, and the overrides."""
    parser = argparse.ArgumentParser(
        prog="expkit", add_help=False, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--config-dir", "-cd", dest="config_dir")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p")
    parser.add_argument("--info", "-i", nargs="?", const="all")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--hydra-help", action="store_true")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    try:
        arguments, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        raise ConfigError([Problem("command line", str(error), "--help")]) from error
    if unknown:
        flags = ", ".join(unknown)
        raise ConfigError([Problem(flags, "no such flag; --help lists what there is", "--help")])
    shown = (arguments.cfg, arguments.info, arguments.hydra_help, arguments.shell_completion)
    arguments.shows = any(shown)
    return arguments


def _init(argv: Sequence[str]) -> int:
    """``expkit init [directory]``."""
    from expkit.project import init

    return init(argv)


def _verify(argv: Sequence[str]) -> int:
    """``expkit verify PATH ...``."""
    from expkit.verify import verify

    return verify(argv)


def _convert(argv: Sequence[str]) -> int:
    """``expkit convert PATH --to FRAMEWORK``."""
    from expkit.convert import convert

    return convert(argv)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "init": _init,
    "verify": _verify,
    "convert": _convert,
}


def _refuse(error: ConfigError) -> int:
    count = len(error.problems)
    _tell(f"expkit: this cannot be run{'' if count == 1 else f', {count} problems'}:")
    for problem in error.problems:
        _tell(f"  {problem}")
    return error.exit_code


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
