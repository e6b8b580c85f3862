"""Checks that each part of a config can be built: it is a mapping that has a ``_target_``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from expkit.config.catalog import Catalog
from expkit.config.schema import CLOSED, LISTS
from expkit.config.suggestion import listing, show
from expkit.core.errors import Problem

ONE = ("driver", "model", "loss", "sampler", "checkpoint", "trainer")
"""The groups that are one part."""
ONE_OR_MANY = ("optimizer", "schedule")
"""The groups that are one part, or map names to several."""

NULLABLE = ("callbacks", "metrics")
"""The groups of which a part may be switched off by null."""


def check_nodes(
    config: Mapping[str, Any],
    choices: Mapping[str, str],
    catalog: Catalog,
    unresolved: Collection[str] = (),
) -> Iterator[Problem]:
    """Check that no part lacks its ``_target_``.

    Args:
        config: a resolved config; a group that is empty is left to the rules.
        choices: the option of each group, for messages.
        catalog: the options there are, for messages.
        unresolved: the keys that are written but have no value.
    """
    for group in LISTS:
        node = config.get(group)
        if isinstance(node, Mapping) and "_target_" in node:
            yield _without_name(group, catalog)
    for key, node in _parts(config):
        group = key.split(".")[0]
        if isinstance(node, Mapping):
            if "_target_" not in node and not {key, f"{key}._target_"} & set(unresolved):
                yield _without_target(key, choices.get(group))
        elif group not in CLOSED:  # the schema has told that one
            value = "null" if node is None else show(node)
            message = f"is {value}; allowed: a mapping with a _target_"
            yield Problem(key, message, f"~{key}" if "." in key else "")


def _parts(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The key and node of everything that the builder will build for itself."""
    for group in ONE:
        if config.get(group):
            yield group, config[group]
    for group in ONE_OR_MANY:
        node = config.get(group)
        if isinstance(node, Mapping) and any(map(_has_target, node.values())):
            yield from _named(group, {} if "_target_" in node else node)
        elif node:
            yield group, node
    if isinstance(config.get("data"), Mapping) and config["data"]:
        yield "data.source", config["data"].get("source", {})
    for group in LISTS:
        node = config.get(group) or {}
        if not isinstance(node, Mapping):
            yield group, node
        elif "_target_" not in node:
            for key, child in _named(group, node):
                if child is not None or group not in NULLABLE:
                    yield key, child


def _named(group: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, child in node.items():
        yield f"{group}.{name}", child


def _has_target(node: Any) -> bool:
    return isinstance(node, Mapping) and "_target_" in node


def _without_target(key: str, choice: str | None) -> Problem:
    group = key.split(".")[0]
    where = f"the file of {group}={choice}" if choice and group not in LISTS else "the config"
    message = f"has no _target_, the class or function that it is built by; {where} must name one"
    return Problem(key, message, f"+{key}._target_=my_module.MyClass")


def _without_name(group: str, catalog: Catalog) -> Problem:
    """A ``_target_`` right below a group of several parts, each of which needs a name."""
    options = [f"{group}={option}" for option in catalog.with_key(group, "_target_")]
    file = f"the file of {listing(options)}" if options else "the config"
    message = (
        f"has a _target_ right below it, but holds parts by name; {file} needs a name around its "
        "keys, such as my_name: {_target_: ...}"
    )
    return Problem(group, message)
