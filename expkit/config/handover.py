"""Hands a command line to Hydra: for what Hydra shows, and for its sweeps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import hydra

from expkit.config.catalog import PACKAGE_DIRECTORY, make_catalog
from expkit.config.left_out import may_be_left_out
from expkit.config.schema import LISTED, LISTS
from expkit.config.search_path import install


def hand_to_hydra(argv: Sequence[str], task: Callable[[Any], Any]) -> None:
    """Let Hydra carry out a command line, ``task`` as the job, the user's ``./conf`` searched.

    Raises:
        Exception: what a job raised.
        SystemExit: Hydra's own complaint.
    """
    install([path for path in make_catalog().directories if path != PACKAGE_DIRECTORY])
    before, sys.argv = sys.argv, [sys.argv[0], *argv]
    try:
        hydra.main(version_base="1.3", config_path=str(PACKAGE_DIRECTORY), config_name="config")(
            task
        )()
    finally:
        sys.argv = before


def for_hydra(text: str) -> str:
    """An override as Hydra wants it.

    ``+experiment=x`` is ``experiment=x``: the defaults list has a place for it already. A key that
    an option's file may leave out is changed where it is there, and added where it is not.
    """
    bare = text.lstrip("+")
    key = bare.partition("=")[0]
    if key in LISTED and key not in LISTS:
        return bare
    return f"++{bare}" if may_be_left_out(key) else text
