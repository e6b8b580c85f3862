"""``expkit convert``: the weights of a run for another framework."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expkit.checkpoint import directory
from expkit.checkpoint.convert import FRAMEWORKS, convert_state
from expkit.checkpoint.find import check_source, find_checkpoint
from expkit.checkpoint.report import is_checkpoint
from expkit.checkpoint.search import name_of
from expkit.checkpoint.tensors import encode
from expkit.command_line import make_parser, override, parse, printable, refusal
from expkit.core.errors import CheckpointError
from expkit.core.store import CheckpointInfo
from expkit.run.history import CONVERTED_DIRECTORY, run_of, trained_by
from expkit.version import __version__

_DESCRIPTION = """\
Writes a checkpoint of the weights alone, as another framework keeps them; init_from takes it. The
weights are those of the model: of a moving average, if there is one, nothing goes along.
Exit code: 0 written, 1 damaged or not written, 2 a wrong argument, or weights of unknown layers.
"""


def convert(argv: Sequence[str]) -> int:
    """The command: writes the converted checkpoint and says how to use it.

    Args:
        argv: the path of a run or of a checkpoint, and flags.

    Returns:
        The exit code.

    Raises:
        ConfigError: wrong arguments, nothing at the path, or something where it should be written.
        CheckpointError: a damaged checkpoint, or one that cannot be converted or written.
    """
    parser = make_parser("convert", "PATH --to FRAMEWORK [options]", _DESCRIPTION)
    parser.add_argument("path", nargs="?", metavar="PATH", help="a run, or one of its checkpoints")
    parser.add_argument("--to", choices=FRAMEWORKS, help="the framework to convert for")
    parser.add_argument(
        "--which", choices=("best", "last"), help="of the checkpoints of a run (default: best)"
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="the checkpoint to write (default: RUN/converted/FRAMEWORK/step-...)",
    )
    arguments = parse(parser, argv)
    if arguments.help:
        sys.stdout.write(parser.format_help())
        return 0
    if arguments.path is None or arguments.to is None:
        raise refusal(parser, "needs a run or a checkpoint, and --to with a framework")
    path = Path(arguments.path)
    try:
        check_source(path)
    except CheckpointError as error:
        raise refusal(parser, printable(str(error))) from error
    if arguments.which and is_checkpoint(path):
        raise refusal(parser, f"--which chooses one of a run, and {path} is one checkpoint")
    found = find_checkpoint(path, arguments.which or "best")
    state = convert_state(found.state, arguments.to)
    output = Path(arguments.output) if arguments.output else _beside(path, arguments.to, found.info)
    if _is_in_a_run(output):
        raise refusal(parser, f"{output.parent} is where a run keeps its own checkpoints")
    if os.path.lexists(output):
        raise refusal(parser, f"{output} is there, and nothing is overwritten; see --output")
    _write(output, state, found.info)
    words = ("python", "-m", "expkit", f"driver={arguments.to}")
    command = shlex.join((*words, override("init_from", str(output))))
    sys.stdout.write(
        f"from     {printable(found.description)}, {state['origin']['converted_from']}\n"
        f"wrote    {shlex.quote(str(output))}, {arguments.to}\n"
        f"use it   {command} ...\n"
    )
    return 0


def _is_in_a_run(output: Path) -> bool:
    """Whether a place is one where a run keeps its own checkpoints."""
    try:
        return run_of(output) != output.absolute()
    except OSError as error:
        raise _unwritten(output, error) from error


def _beside(path: Path, framework: str, info: CheckpointInfo) -> Path:
    """Where a converted checkpoint goes: into its run; beside it where it belongs to none."""
    run = trained_by(path)
    if run == path.absolute() and is_checkpoint(path):
        run = path.absolute().parent
    output = run / CONVERTED_DIRECTORY / framework / name_of(info.step)
    if not Path(os.path.realpath(output.parent)).is_relative_to(os.path.realpath(run)):
        raise CheckpointError(f"{output} leads out of {run}; name another place by --output")
    return output if path.is_absolute() else Path(os.path.relpath(output))


def _write(path: Path, state: Mapping[str, Any], info: CheckpointInfo) -> None:
    parts = encode(state)
    origin = {key: state["origin"].get(key) for key in ("framework", "world_size")}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory.write(
            path,
            parts,
            lambda: tuple(part.entry() for part in parts),
            info,
            {"expkit": __version__, **origin},
        )
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot write {path}: {error.strerror} (at {error.filename}); nothing is left behind. "
        "Make room, or write elsewhere by --output"
    )
