"""Earlier runs: which is meant, and what it was made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from expkit.core.errors import ConfigError, Problem, RunDirectoryError
from expkit.run.directory import CHECKPOINTS_DIRECTORY, CONFIG_FILE, OVERRIDES_FILE
from expkit.run.regular import read_regular
from expkit.run.status import STATUS_FILE

PLACES_OF_RUNS = tuple(f"{above}/{STATUS_FILE}" for above in ("*", "*/*", "*/*/*"))
"""Below an output directory: by ``hydra.run.dir``, by day, and the jobs of a sweep."""
CONVERTED_DIRECTORY = "converted"
"""Where in a run its weights go that were converted for another framework."""

_LIMIT_BYTES = 2 << 20
_MOST_DEPTH = 100
_OF_THE_COMMAND = frozenset(("task", "resume", "init_from", "output_dir", "hydra"))
"""What an earlier command said of itself."""
_OF_TRAINING = frozenset(("tags", "optimizer", "schedule", "callbacks", "checkpoint", "logger"))
"""Groups and keys that say nothing of what was trained, nor of how it is evaluated."""
_OF_EVALUATION = frozenset(
    f"trainer.{key}"
    for key in (
        "input_mapping",
        "output_mapping",
        "whole_batch",
        "limit_eval_batches",
        "overfit_batches",
    )
)
"""Of the trainer's keys, those that an evaluation uses too."""


def run_of(path: Path) -> Path:
    """The run directory that a path names: itself, or the one whose checkpoint it is; absolute."""
    path = path.absolute()
    if (path / STATUS_FILE).is_file():
        return path
    if path.parent.name == CHECKPOINTS_DIRECTORY:
        return path.parent.parent
    return path.parent if path.name == CHECKPOINTS_DIRECTORY else path


def trained_by(path: Path) -> Path:
    """The run whose weights a path holds: as `run_of`, and that of a converted checkpoint too."""
    path = path.absolute()
    for above in (path, *path.parents[:2]):
        if above.name == CONVERTED_DIRECTORY and (above.parent / STATUS_FILE).is_file():
            return above.parent
    return run_of(path)


def trainings(root: Path) -> list[Path]:
    """The trainings below an output directory, a sweep's jobs included; the one begun last first.

    What ``run.json`` says decides, not the times of files or their names.
    """
    begun = []
    for file in chain.from_iterable(map(root.glob, PLACES_OF_RUNS)):
        try:
            info = json.loads(read_regular(file))
            if info["task"] == "train":
                moment = datetime.fromisoformat(info["created"]).timestamp()
                begun.append((moment, str(file.parent)))
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            continue  # never started, or damaged: it is not what is meant
    return [Path(path) for _, path in sorted(begun, reverse=True)]


def of_resumed(key: str) -> bool:
    """Whether an override of a run holds for the run that goes on in its place."""
    return _group(key) not in _OF_THE_COMMAND


def of_evaluated(key: str) -> bool:
    """Whether an override of a run holds for the evaluation of its weights."""
    if key.startswith("trainer."):
        return key in _OF_EVALUATION
    return _group(key) not in _OF_THE_COMMAND | _OF_TRAINING


def inherited(run: Path, given: Collection[str], travels: Callable[[str], bool]) -> list[str]:
    """The overrides of a run that hold again, in their order.

    They are composed again from the config files at hand. What names code (``_target_``) does not
    travel, so that a run directory from elsewhere cannot choose what is executed.

    Args:
        run: the run directory; without ``overrides.yaml`` there are none.
        given: keys and groups that are given anew, and hold in place of the run's own.
        travels: whether the override of a key holds again: `of_resumed` or `of_evaluated`.

    Raises:
        RunDirectoryError: the file is damaged.
        ConfigError: one of them names code and is not given anew.
    """
    kept = [
        text
        for text in saved_overrides(run)
        if travels(key_of(text)) and not {key_of(text), _group(key_of(text))} & set(given)
    ]
    message = f"names code in {run / OVERRIDES_FILE}, which is not taken over; give it again"
    problems = [Problem(key_of(text), message, text) for text in kept if "_target_" in text]
    if problems:
        raise ConfigError(problems)
    return kept


def saved_overrides(run: Path) -> list[str]:
    """What ``overrides.yaml`` of a run holds; nothing for a directory that is no run.

    Raises:
        RunDirectoryError: it is damaged, or missing from a run.
    """
    file = run / OVERRIDES_FILE
    if not file.exists():
        if (run / CONFIG_FILE).is_file():
            raise RunDirectoryError(f"{file} is missing: what the run was made from is not known")
        return []
    overrides = _read_yaml(file)
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise RunDirectoryError(f"{file} is damaged: it holds no list of overrides")
    return overrides


def saved_config(run: Path) -> dict[str, Any]:
    """What ``config.yaml`` of a run holds.

    Raises:
        RunDirectoryError: it is absent or damaged.
    """
    file = run / CONFIG_FILE
    config = _read_yaml(file)
    if not isinstance(config, dict):
        raise RunDirectoryError(f"{file} is damaged: it holds no config")
    if not isinstance(config.get("init_from"), str | None):
        raise RunDirectoryError(f"{file} is damaged: init_from is no path")
    return config


def changed_keys(before: Any, after: Any, key: str = "") -> Iterator[str]:
    """The keys whose values differ, as ``trainer.n_epochs: 20 -> 40``."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            yield from changed_keys(
                before.get(name), after.get(name), f"{key}.{name}" if key else str(name)
            )
    elif before != after:
        yield f"{key}: {_as_written(before)} -> {_as_written(after)}"


def _as_written(value: Any) -> str:
    """A value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def key_of(override: str) -> str:
    """The key or group that an override sets, without the marks ``+`` and ``~``."""
    return override.partition("=")[0].lstrip("+~")


def _group(key: str) -> str:
    return key.replace("/", ".").split(".")[0]


def _read_yaml(file: Path) -> Any:
    try:
        text = read_regular(file, _LIMIT_BYTES).decode()
        _check_yaml(text)
        return yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {_reason(error)}") from error


def _check_yaml(text: str) -> None:
    """Refuse what no run writes and what could grow beyond measure: aliases, great depth."""
    depth = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it holds an alias")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return (text or type(error).__name__).splitlines()[0]
