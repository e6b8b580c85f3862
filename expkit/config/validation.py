"""Composes a config and finds everything that is wrong with it, before a framework is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra import initialize_config_dir

from expkit.config.catalog import PACKAGE_DIRECTORY, make_catalog
from expkit.config.composer import Composer
from expkit.config.limits import check_files
from expkit.config.overrides import parse
from expkit.config.schema import GROUPS
from expkit.config.search_path import install
from expkit.core.errors import ConfigError


@dataclass(frozen=True)
class Composition:
    """A config that can be run.

    Attributes:
        config: the resolved config as plain dicts and lists, every group present.
        choices: the option of each group that has one.
        overrides: the command line's overrides as they were given.
        hydra: what the command line sets of Hydra's own config, such as ``run.dir``.
        files: the file that each group's option comes from, for messages.
        notes: lines to be shown to the user once, such as which of their files stands before one of
            expkit's.
        config_dir: the further directory with the user's options.
    """

    config: dict[str, Any]
    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    hydra: Mapping[str, Any]
    files: Mapping[str, str]
    notes: tuple[str, ...]
    config_dir: str | None = None


def check(
    overrides: Sequence[str], *, config_dir: str | None = None, multirun: bool = False
) -> Composition:
    """Compose the config of a command line and check all of it.

    Args:
        overrides: overrides as they were given.
        config_dir: a further directory with the user's options; ``./conf`` is always looked at.
        multirun: whether overrides may name several values. Each value of each override is checked,
            with the others
            at their first: the sum of the sweep's values, not their product. The result is that of
                the first values.

    Raises:
        ConfigError: holds every problem that was found.
    """
    catalog = make_catalog(config_dir)
    problems = list(check_files(catalog.user_files))
    if problems:
        raise ConfigError(problems)
    install([path for path in catalog.directories if path != PACKAGE_DIRECTORY])
    assignments, problems = parse(overrides, catalog, multirun)
    with initialize_config_dir(str(PACKAGE_DIRECTORY), job_name="expkit", version_base="1.3"):
        refused = {problem.key for problem in problems} & set(catalog.groups)
        composer = Composer(catalog, assignments, refused)
        config, choices, found = composer.first()
        problems += found
        problems += composer.others()
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    notes = tuple(
        f"{mine} is used in place of expkit's own {other}" for mine, other in catalog.hidden
    )
    files = {
        group: str(path) for group in GROUPS if (path := catalog.find(group, choices.get(group)))
    }
    hydra = {
        each.key.removeprefix("hydra."): each.values[0]
        for each in assignments
        if each.key.startswith("hydra.")
    }
    return Composition(config, choices, tuple(overrides), hydra, files, notes, config_dir)
