"""Checks that the parts of a config can be built: each is a mapping that has a ``_target_``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from expkit.config.catalog import Catalog
from expkit.config.schema import LISTS
from expkit.config.suggestion import listing, literal
from expkit.core.errors import Problem

ONE = ("driver", "model", "sampler", "checkpoint", "trainer", "loss")
"""The groups that are one part."""
ONE_OR_MANY = ("optimizer", "schedule")
"""The groups that are one part, or name several."""


def check_nodes(
    config: Mapping[str, Any],
    choices: Mapping[str, str],
    catalog: Catalog,
    unresolved: Collection[str] = (),
) -> Iterator[Problem]:
    """Check that nothing lacks its ``_target_``.

    Args:
        config: a resolved config; a group that is empty is left to the rules.
        choices: the option of each group, for messages.
        catalog: the options there are, for messages.
        unresolved: keys that are there but have no value.
    """
    nodes = {group: config[group] for group in ONE if config.get(group)}
    for group in ONE_OR_MANY:
        node = config.get(group)
        if isinstance(node, Mapping) and "_target_" not in node and _holds_nodes(node):
            nodes |= {f"{group}.{name}": child for name, child in node.items()}
        elif node:
            nodes[group] = node
    data = config.get("data")
    if isinstance(data, Mapping) and data and f"data={choices.get('data')}":
        nodes["data.source"] = data.get("source", {})
    for group in LISTS:
        yield from _check_list(group, config.get(group), catalog)
        if isinstance(config.get(group), Mapping) and "_target_" not in config[group]:
            nodes |= {f"{group}.{name}": each for name, each in config[group].items()}
    for key, node in nodes.items():
        if f"{key}._target_" not in unresolved and key not in unresolved:
            yield from _check_node(key, node, choices)


def _holds_nodes(node: Mapping[str, Any]) -> bool:
    return any(isinstance(child, Mapping) and "_target_" in child for child in node.values())
