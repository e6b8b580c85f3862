"""Keys that are not there: what is there in their place, and which one was probably meant."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from expkit.config.catalog import Catalog
from expkit.config.left_out import left_out
from expkit.config.overrides import Assignment
from expkit.config.resolution import Choices
from expkit.config.suggestion import listing, nearest
from expkit.core.errors import Problem


def has_parent(node: Any, key: str) -> bool:
    """Whether a key leads through mappings and lists only, as far as they are there."""
    for part in key.split(".")[:-1]:
        if isinstance(node, ListConfig) and part.isdigit() and int(part) < len(node):
            node = node._get_node(int(part))
        elif isinstance(node, DictConfig) and not node._is_none():
            if part not in node:
                return True
            node = node._get_node(part)
        else:
            return False
    return isinstance(node, DictConfig | ListConfig)


def unknown_key(
    node: DictConfig, choices: Choices, change: Assignment, catalog: Catalog
) -> Problem:
    """Names what is there in place of a key that is not, and the nearest right one."""
    key, value = change.key, change.text.partition("=")[2]
    parts = key.split(".")
    parent: Any = node
    depth = 0
    while depth < len(parts) - 1 and isinstance(parent, DictConfig) and parts[depth] in parent:
        parent = parent._get_node(parts[depth])
        depth += 1
    prefix = ".".join(parts[:depth])
    names = (
        [str(name) for name in parent]
        if isinstance(parent, DictConfig) and not parent._is_none()
        else []
    )
    if depth == len(parts) - 1 and parts[depth] in names:
        return Problem(
            key, "lacks some of the keys given; + adds them", f"+{change.text.lstrip('+')}"
        )
    if parts[depth] in names or not isinstance(parent, DictConfig):
        return Problem(key, f"{prefix or parts[depth]} is no mapping: there can be no key below it")
    choice = choices.get(parts[0], "default")
    where = f"{parts[0]}={choice}" if choice != "default" else prefix or "the top level"
    absent = left_out(node, parts[0]) if depth == 1 else []
    if parts[depth] in absent:
        message = f"no such key; {where} has no {parts[0]}.{parts[1]}; + adds it"
        return Problem(key, message, f"+{key}={value}")
    names += absent
    near_key = _near_key(node, parts, prefix, names)
    options = _options(parts, node, choice, catalog)
    shown = sorted(set(names) - {"_target_"})
    message = f"no such key; {where} has: {listing(shown)}"
    if depth == len(parts) - 1 and not change.mark and _is_of_another(parent):
        near = nearest(parts[depth], names)
        hint = f"{prefix}.{near}={value}" if near else f"+{key}={value}"
        return Problem(key, f"{message}; if its _target_ takes it, + adds it", hint)
    if options:
        message += f"; {key} is a key of {listing(f'{parts[0]}={option}' for option in options)}"
        near_key = None
    hint = f"{near_key}={value}" if near_key else f"{parts[0]}={options[0]}" if options else ""
    return Problem(key, message, hint)


def _options(parts: list[str], node: DictConfig, choice: str, catalog: Catalog) -> list[str]:
    """The other options of a group that have the key, first those of the same framework."""
    group = parts[0]
    names = [name for name in catalog.with_key(group, ".".join(parts[1:])) if name != choice]
    framework = OmegaConf.select(node, f"{group}.framework", throw_on_resolution_failure=False)

    def is_of_another(name: str) -> bool:
        keys = catalog.groups[group][name].keys
        return framework not in [key.value for key in keys if key.path == "framework"]

    return sorted(names, key=is_of_another) if framework is not None else names


def _is_of_another(node: DictConfig) -> bool:
    """Whether what a node builds is not expkit's, so that it may take more than its file says."""
    target = node._get_node("_target_") if "_target_" in node else None
    return target is not None and not str(target._value()).startswith("expkit.")


def _near_key(node: DictConfig, parts: list[str], prefix: str, names: list[str]) -> str | None:
    """The right key: the same name in another group, else a similar one here, else elsewhere."""
    nodes = {str(group): node._get_node(group) for group in node}
    by_leaf = {
        name: f"{group}.{name}"
        for group, child in reversed(nodes.items())
        if isinstance(child, DictConfig)
        for name in map(str, child)
    }
    leaf = parts[-1]
    if leaf in by_leaf and leaf != "_target_":
        return by_leaf[leaf]
    depth = prefix.count(".") + 1 if prefix else 0
    near = nearest(parts[depth], names)
    if near:
        return ".".join([*parts[:depth], near, *parts[depth + 1 :]])
    near = nearest(leaf, by_leaf)
    return by_leaf[near] if near else None
