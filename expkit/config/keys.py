"""Checks a resolved config key by key against the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from typing import Any

from expkit.config.kinds import accepts, complaint
from expkit.config.schema import CLOSED, GROUPS, NEEDED, OPEN, RunConfig, defaults, kinds
from expkit.config.suggestion import listing, literal, nearest
from expkit.core.errors import Problem


def check_keys(config: Mapping[str, Any], own_groups: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Check a resolved config key by key.

    Args:
        config: the whole config.
        own_groups: groups that the user added to expkit's.
    """
    run = {
        key: value for key, value in config.items() if key not in GROUPS and key not in own_groups
    }
    yield from _check_group("", run, RunConfig, closed=True)
    for group, schema in CLOSED.items():
        node = config.get(group)
        if not isinstance(node, Mapping):
            yield from _no_mapping(group, node)
            continue
        own = is_own(node) or "_target_" not in node
        yield from _check_group(group, node, schema, closed=own)
    for group, schema in OPEN.items():
        for key, node in _nodes(group, config.get(group)):
            if is_own(node):
                yield from _check_group(key, node, schema, closed=False)


def is_own(node: Mapping[str, Any]) -> bool:
    """Whether a node's target is part of expkit."""
    return str(node.get("_target_", "")).startswith("expkit.")


def _nodes(key: str, node: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A node, or the nodes in it where it maps names to them (several optimizers)."""
    if not isinstance(node, Mapping):
        return
    if "_target_" in node:
        yield key, node
        return
    for name, child in node.items():
        if isinstance(child, Mapping) and "_target_" in child:
            yield f"{key}.{name}", child


def _no_mapping(group: str, node: Any) -> Iterator[Problem]:
    if group in NEEDED and node is None:
        return  # said once, by the rules
    if node is not None:
        yield Problem(group, f"is {literal(node)}; allowed: an option's name, or keys below it")


def _check_group(
    prefix: str, node: Mapping[str, Any], schema: type, closed: bool
) -> Iterator[Problem]:
    known = kinds(schema)
    usual = defaults(schema)
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if name in known:
            message = complaint(value, known[name])
            if message:
                mended = _mended(value, known[name], usual.get(name, MISSING))
                yield Problem(
                    key, message, f"{key}={literal(mended)}" if mended is not MISSING else ""
                )
        elif closed:
            near = nearest(str(name), known)
            near_key = f"{prefix}.{near}" if prefix else near
            hint = f"{near_key}={literal(value)}" if near and not isinstance(value, Mapping) else ""
            allowed = listing(sorted(set(known) - {"_target_"}))
            yield Problem(key, f"no such key; {prefix or 'the top level'} has: {allowed}", hint)


def _mended(value: Any, kind: Any, usual: Any) -> Any:
    """A right value near a wrong one: what was probably meant, else the default."""
    words = {
        "None": None,
        "none": None,
        "yes": True,
        "on": True,
        "True": True,
        "no": False,
        "off": False,
    }
    if isinstance(value, str) and value in words and accepts(words[value], kind):
        return words[value]
    if isinstance(value, float) and value == value // 1 and accepts(int(value), kind):
        return int(value)
    return usual
