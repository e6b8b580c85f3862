"""State trees: nested dicts by parameter path with NumPy arrays and JSON values as leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expkit.core.errors import CheckpointError


def rank_key(rank: int) -> str:
    """The key of what belongs to one rank alone, such as its random state: ``0003``."""
    return f"{rank:04d}"


def check_same_paths(own: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Make sure that a state has exactly the paths that a model has.

    Raises:
        CheckpointError: it lacks some or has others besides; names the first three of each.
    """
    missing = sorted(set(own) - set(state))
    unexpected = sorted(set(state) - set(own))
    parts = [
        f"{what} {', '.join(paths[:3])}{' ...' if len(paths) > 3 else ''}"
        for what, paths in (("it lacks", missing), ("it has besides", unexpected))
        if paths
    ]
    if parts:
        raise CheckpointError(f"the checkpoint is of another model: {'; '.join(parts)}")


def check_same_shape(path: str, own: tuple[int, ...], state: tuple[int, ...]) -> None:
    """Make sure that an array fits its parameter.

    Raises:
        CheckpointError: the shapes differ.
    """
    if tuple(own) != tuple(state):
        raise CheckpointError(
            f"the checkpoint is of another model: {path} has shape {tuple(state)} there, "
            f"{tuple(own)} here"
        )
