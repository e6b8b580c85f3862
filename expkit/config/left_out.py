"""Keys that the schema of a group has and that an option's file may leave out."""

from __future__ import annotations

from omegaconf import DictConfig

from expkit.config.schema import CLOSED, defaults, kinds

FILLED = ("trainer", "checkpoint", "data")
"""The closed groups whose keys all have a default; drivers have different keys on purpose."""


def may_be_left_out(key: str) -> bool:
    """Whether a key is one that an option's file need not have."""
    group, _, name = key.partition(".")
    return group in FILLED and name in kinds(CLOSED[group])


def left_out(node: DictConfig, group: str) -> list[str]:
    """The keys that the schema has, the chosen option's file has not, and its target may take.

    None where the target is another one of expkit's than the schema is of: what that takes is
    known, and its file has all of it.
    """
    parent = node._get_node(group) if group in FILLED and group in node else None
    if not isinstance(parent, DictConfig) or parent._is_none() or parent._is_interpolation():
        return []
    schema = CLOSED[group]
    target = parent._get_node("_target_") if "_target_" in parent else None
    name = None if target is None else str(target._value())
    if name and name.startswith("expkit.") and name != defaults(schema).get("_target_"):
        return []
    return [key for key in kinds(schema) if key not in parent]
