"""What an earlier run was made from."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import yaml

from expkit.core.errors import RunDirectoryError
from expkit.run.directory import OVERRIDES_FILE

_OF_ITS_OWN = frozenset(
    ("task", "name", "tags", "resume", "init_from", "output_dir", "hydra")
    + ("trainer", "optimizer", "schedule", "callbacks", "checkpoint", "logger", "debug")
)
"""Keys and groups that belong to a run and its training rather than to what it trained."""


def overrides_of(path: Path, but: Collection[str]) -> list[str]:
    """The overrides that chose a run's model, data and metrics.

    Only group options and values travel, by their names; they are composed again from the config
    files at hand. What names code (``_target_``) does not, so that a run directory from elsewhere
    cannot choose what is executed.

    Args:
        path: a run directory, or a checkpoint in it.
        but: keys that are given anew.

    Raises:
        RunDirectoryError: the file is damaged.
    """
    file = next(
        (p / OVERRIDES_FILE for p in (path, *path.parents[:2]) if (p / OVERRIDES_FILE).is_file()),
        None,
    )
    if file is None:
        return []
    try:
        overrides = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from error
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise RunDirectoryError(f"{file} is damaged: it holds no list of overrides")
    return [text for text in overrides if _travels(text, but)]


def _travels(text: str, but: Collection[str]) -> bool:
    key = text.split("=", 1)[0].lstrip("+~")
    group = key.replace("/", ".").split(".")[0]
    return "_target_" not in text and group not in _OF_ITS_OWN and key not in but
