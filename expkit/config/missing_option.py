"""An option that the defaults list of a config file names, and that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expkit.config.catalog import Catalog, Option
from expkit.config.resolution import Choices
from expkit.config.suggestion import listing, literal, nearest, show
from expkit.core.errors import Problem


def missing_option(missing: str, chosen: Choices, catalog: Catalog) -> Problem:
    """Names the file that asks for the option, what is allowed, and what was probably meant.

    Args:
        missing: group and option, as ``metrics/confusion``.
        chosen: the options that the command line chooses, by group: their files are looked at
            first.
        catalog: the options there are.
    """
    group, _, name = missing.partition("/")
    allowed = catalog.choices(group)
    where, names = "", [name]
    for option in _by_likelihood(chosen, catalog):
        named = _named(option, group)
        if name in named:
            where, names = f", which the defaults list of {option.path} names", named
            break
    wrong = listing(show(each) for each in names if each not in allowed)
    mended = [each if each in allowed else nearest(each, allowed) for each in names]
    value = literal(mended if len(mended) > 1 else mended[0])
    hint = f"{group}={value}" if all(mended) else ""
    return Problem(group, f"no option {wrong}{where}; allowed: {listing(allowed)}", hint)


def _by_likelihood(chosen: Choices, catalog: Catalog) -> list[Option]:
    options = [option for group in catalog.groups.values() for option in group.values()]
    return sorted(options, key=lambda option: chosen.get(option.group) != option.name)


def _named(option: Option, group: str) -> list[str]:
    """The options of a group that a file's defaults list names."""
    import yaml

    content = yaml.safe_load(option.text)
    entries = content.get("defaults") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return []
    return [name for entry in entries for name in _names(entry, option.group, group)]


def _names(entry: Any, own: str, group: str) -> Iterator[str]:
    """What an entry such as ``override /metrics: [accuracy]``, or ``base`` for short, names."""
    if not isinstance(entry, dict):
        if own == group:
            yield str(entry)
        return
    for words, names in entry.items():
        place = str(words).split()[-1].partition("@")[0].lstrip("/")
        if place == group:
            yield from map(str, names if isinstance(names, list) else [names])
