"""In what a run that goes on is other than it was, as its user would say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from expkit.config.schema import GROUPS
from expkit.config.validation import Composition, check
from expkit.core.errors import ExpkitError
from expkit.run.history import changed_keys, key_of, saved_overrides

_ALWAYS_FIT = frozenset(
    ("trainer", "checkpoint", "logger", "schedule", "name", "tags", "monitor", "output_dir")
)
"""Groups and keys that no checkpoint contradicts."""


def changes_of(
    run: Path, before: Mapping[str, Any], after: Mapping[str, Any], now: Composition
) -> tuple[str, ...]:
    """What is other than it was, a line each, as ``trainer.n_epochs: 20 -> 40``.

    A group of which another option was chosen is one line, ``driver: torch_ddp -> torch``, and one
    for each of its keys that are given.

    Args:
        run: the run directory; its overrides say which options it had.
        before: the config that it had.
        after: the one that it goes on with.
        now: what was composed for that.
    """
    lines = tuple(changed_keys(before, after))
    if not any(key_of(text) in (*GROUPS, "experiment") for text in now.overrides):
        return lines
    touched = {line.partition(":")[0].partition(".")[0] for line in lines} & set(GROUPS)
    options = _options_of(run, now) if touched else {}
    chosen = {
        group: f"{group}: {options[group]} -> {now.choices[group]}"
        for group in GROUPS
        if group in touched
        and group in options.keys() & now.choices.keys()
        and options[group] != now.choices[group]
    }
    return tuple(_by_option(lines, chosen, {key_of(text) for text in now.overrides}))


def _by_option(lines: Iterable[str], chosen: dict[str, str], given: set[str]) -> Iterator[str]:
    """The lines, but one for all that follows from the choice of another option."""
    told = set()
    for line in lines:
        key = line.partition(":")[0]
        group = key.partition(".")[0]
        if group in chosen and group not in told:
            told.add(group)
            yield chosen[group]
        if group not in chosen or any(_is_below(key, each) for each in given if "." in each):
            yield line


def _options_of(run: Path, now: Composition) -> Mapping[str, str]:
    """The option of each group that a run was made with; empty where its files are gone."""
    try:
        before = [text for text in saved_overrides(run) if key_of(text) != "resume"]
        return check(before, config_dir=now.config_dir).choices
    except ExpkitError:
        return {}


def asked_for(run: Path, changes: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
    """Of the arguments of a command line, those by which a run's checkpoint may not fit any more.

    Args:
        run: the run directory, with the overrides that it had.
        changes: see `changes_of`.
        argv: the command line.
    """
    changed = [line.partition(":")[0] for line in changes]
    known = saved_overrides(run)
    asked = tuple(
        text
        for text in argv
        if text not in known and any(_concerns(key_of(text), key) for key in changed)
    )
    fatal = tuple(text for text in asked if _group(key_of(text)) not in _ALWAYS_FIT)
    return fatal or asked


def _concerns(given: str, changed: str) -> bool:
    return given == "experiment" or _is_below(changed, given) or _is_below(given, changed)


def _is_below(key: str, other: str) -> bool:
    """Whether a key is another one or lies below it."""
    return key == other or key.startswith(f"{other}.")


def _group(key: str) -> str:
    return key.partition(".")[0]
