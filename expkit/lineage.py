"""What a command line takes over from that of an earlier run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from expkit.command_line import override
from expkit.config.validation import check
from expkit.core.errors import CheckpointError, RunDirectoryError
from expkit.run.history import (
    PLACES_OF_RUNS,
    inherited,
    key_of,
    of_evaluated,
    of_resumed,
    run_of,
    trained_by,
    trainings,
)

LATEST = "latest"


def with_inherited(overrides: Sequence[str], config_dir: str | None) -> list[str]:
    """The overrides of a command line after those that it takes over.

    ``resume=RUN`` means the run as it was: all of its overrides come first, so that the command
    need not repeat them. ``task=evaluate init_from=RUN`` takes those that chose its model, data and
    metrics. What is given now holds in any case. ``latest`` becomes the run that is meant: the one
    begun last of those that have a checkpoint or, to go on with, have not completed.

    Raises:
        RunDirectoryError: there is no such latest run, a path cannot be looked at, or the file of a
            run's overrides is damaged.
        ConfigError: the run's overrides name code.
    """
    given = [key_of(text) for text in overrides]
    resume, source = _value(overrides, "resume"), _value(overrides, "init_from")
    if resume is not None:
        path = Path(resume)
        if resume == LATEST:
            path = _latest(overrides, config_dir, to_go_on=True)
        taken = _taken(path, run_of, given, of_resumed)
        rest = [text for text in overrides if key_of(text) != "resume"]
        return [*taken, *rest, override("resume", str(path))]
    if source == LATEST:
        source = str(_latest(overrides, config_dir, to_go_on=False))
        rest = [text for text in overrides if key_of(text) != "init_from"]
        overrides = [*rest, override("init_from", source)]
    if source is not None and _value(overrides, "task") not in (None, "train"):
        return [*_taken(Path(source), trained_by, given, of_evaluated), *overrides]
    return list(overrides)


def _taken(
    path: Path,
    to_run: Callable[[Path], Path],
    given: Sequence[str],
    travels: Callable[[str], bool],
) -> list[str]:
    """See `inherited`; a path that is too long, or in a closed directory, is refused."""
    try:
        return inherited(to_run(path), given, travels)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be looked at: {error.strerror}") from error


def _value(overrides: Sequence[str], key: str) -> str | None:
    """The text that the command line sets a key to; None for none, null, and what is refused."""
    value = None
    for text in overrides:
        if key_of(text) == key:
            try:
                value = OverridesParser.create().parse_override(text).value()
            except HydraException:
                return None  # told with all that is wrong when the config is checked
    return value if isinstance(value, str) else None


def _latest(overrides: Sequence[str], config_dir: str | None, to_go_on: bool) -> Path:
    """The training begun last that can be used; those passed over are told."""
    # Imports NumPy, for which a config that is refused shall not wait.
    from expkit.checkpoint.find import check_resumable, check_source

    root = _output_directory(overrides, config_dir)
    check_run = check_resumable if to_go_on else check_source
    for run in trainings(root):
        try:
            check_run(run)
        except CheckpointError as error:
            sys.stderr.write(f"note: passed over: {error}\n")
            continue
        return run
    raise RunDirectoryError(
        f"there is no run with a checkpoint in {root.absolute()} to go on with: looked for "
        f"{', '.join(PLACES_OF_RUNS)} there; start one, or name the place by output_dir=..."
    )


def _output_directory(overrides: Sequence[str], config_dir: str | None) -> Path:
    """Where runs are made: the user's files may say it, hence it is composed."""
    relevant = [text for text in overrides if key_of(text) in ("output_dir", "experiment")]
    return Path(check(relevant, config_dir=config_dir).config["output_dir"])
