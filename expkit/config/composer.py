"""Composes a config with Hydra: options first, then single keys, so that every problem is told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import yaml
from hydra import compose
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from expkit.config.catalog import Catalog
from expkit.config.keys import check_keys
from expkit.config.kinds import seconds
from expkit.config.left_out import left_out, may_be_left_out
from expkit.config.missing_option import missing_option
from expkit.config.misspelling import has_parent, unknown_key
from expkit.config.nodes import check_nodes
from expkit.config.overrides import Assignment, is_fixed
from expkit.config.resolution import Choices, resolve
from expkit.config.rules import check_rules
from expkit.config.schema import CLOSED, GROUPS, OPTIONAL
from expkit.core.errors import Problem

_REFUSED = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError),
    *(AttributeError, RecursionError, TypeError, ValueError),
)
"""What Hydra raises for config files that it cannot read or combine."""


class Composer:
    """Composes the first values of all assignments, then each other value beside the first ones.

    Args:
        catalog: the options there are.
        assignments: the good overrides.
        refused: the groups whose choice was refused.
    """

    def __init__(
        self,
        catalog: Catalog,
        assignments: Sequence[Assignment],
        refused: Collection[str] = (),
    ) -> None:
        self._catalog = catalog
        # The default option stands in for a refused one: what it lacks is no problem of the user's.
        self._refused = frozenset(GROUPS if set(refused) & set(OPTIONAL) else refused)
        self._chosen = [
            each for each in assignments if (each.is_group or each.is_native) and not each.is_void
        ]
        self._changes = [each for each in assignments if not (each.is_group or each.is_native)]
        self._given = frozenset(each.key for each in self._changes)

    def first(self) -> tuple[dict[str, Any], Choices, list[Problem]]:
        """Config, choices and problems with the first values."""
        return self._run([each.line() for each in self._chosen])

    def others(self) -> Iterator[Problem]:
        """The problems that only the other values have."""
        for place, swept in enumerate(self._chosen):
            for number in range(1, len(swept.values)):
                lines = [each.line() for each in self._chosen]
                lines[place] = swept.line(number)
                yield from self._run(lines)[2]
        swept_changes = [each for each in self._changes if len(each.values) > 1]
        if not swept_changes:
            return
        node, choices, found = self._compose([each.line() for each in self._chosen])
        if node is None:
            yield from found
            return
        self._apply_all(node, choices)
        for swept in swept_changes:
            if swept.mark == "+":  # its first value has added the key
                swept = replace(swept, mark="++")
            for value in (
                *swept.values[1:],
                swept.values[0],
            ):  # the first one last: it stays for the next key
                yield from self._apply(node, choices, swept, value)
                yield from self._examine(node, choices)[1]

    def _run(self, lines: list[str]) -> tuple[dict[str, Any], Choices, list[Problem]]:
        node, choices, problems = self._compose(lines)
        if node is None:
            return {}, choices, problems
        problems = self._apply_all(node, choices)
        config, found = self._examine(node, choices)
        return config, choices, problems + found

    def _compose(self, lines: list[str]) -> tuple[DictConfig | None, Choices, list[Problem]]:
        """What the chosen options give, before single keys are changed."""
        try:
            node = compose("config", lines, return_hydra_config=True)
        except _REFUSED as error:
            missing = error.missing_cfg_file if isinstance(error, MissingConfigException) else None
            if missing and missing.partition("/")[0] in self._catalog.groups:
                chosen = {each.key: str(each.values[0]) for each in self._chosen}
                return None, {}, [missing_option(missing, chosen, self._catalog)]
            return None, {}, [_composition_problem(error)]
        choices = {
            str(group): str(name)
            for group, name in node.hydra.runtime.choices.items()
            if name is not None
        }
        with open_dict(node):
            del node["hydra"]
        return node, choices, []

    def _apply_all(self, node: DictConfig, choices: Choices) -> list[Problem]:
        return [
            problem
            for each in self._changes
            for problem in self._apply(node, choices, each, each.values[0])
        ]

    def _apply(
        self, node: DictConfig, choices: Choices, change: Assignment, value: Any
    ) -> Iterator[Problem]:
        """Change one key, as Hydra does, but with every problem told."""
        key = change.key
        if not has_parent(node, key):
            yield unknown_key(node, choices, change, self._catalog)
            return
        mark = _mark(node, change)
        if mark == "" or (mark == "++" and change.group in CLOSED):
            try:
                OmegaConf.update(node, key, value, merge=True)
            except (OmegaConfBaseException, AttributeError, TypeError, ValueError):
                yield unknown_key(node, choices, change, self._catalog)
            return
        try:
            with open_dict(node):
                if mark == "~":
                    yield from _delete(node, choices, change, self._catalog)
                elif (
                    mark == "+"
                    and not isinstance(value, dict | list)
                    and OmegaConf.select(node, key, throw_on_missing=False) is not None
                ):
                    yield Problem(
                        key, "is there already; without + it is changed", change.text.lstrip("+")
                    )
                else:
                    OmegaConf.update(node, key, value, merge=True, force_add=True)
        except (OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
            yield Problem(key, f"can't be set: {str(error).splitlines()[0]}")

    def _examine(self, node: DictConfig, choices: Choices) -> tuple[dict[str, Any], list[Problem]]:
        """Resolve and check a composed config."""
        config, problems = resolve(node, choices, self._catalog, self._refused)
        for group in GROUPS:
            config.setdefault(group, {})
        own = tuple(set(self._catalog.groups) - set(GROUPS))
        unresolved = {problem.key for problem in problems}
        problems += check_keys(config, own)
        problems += check_nodes(config, choices, self._catalog, unresolved | self._refused)
        if not problems and not self._refused:
            problems += check_rules(config, self._given)
        if not problems:
            _normalise(config, choices)
        return config, problems


def _normalise(config: dict[str, Any], choices: Choices) -> None:
    """Put what is written in a short form into its long one."""
    if config["name"] is None:
        name = choices.get("experiment") or choices.get("data") or "run"
        config["name"] = name.rpartition("/")[2]
    if isinstance(config["trainer"].get("max_time"), str):
        config["trainer"]["max_time"] = seconds(config["trainer"]["max_time"])


def _mark(node: DictConfig, change: Assignment) -> str:
    """``+`` for a key that the option's file leaves out, none for one that it has."""
    name = change.key.partition(".")[2]
    if change.mark == "~" or not may_be_left_out(change.key):
        return change.mark
    if name in left_out(node, change.group):
        return "+"
    return "" if is_fixed(change.key) else change.mark


def _delete(
    node: DictConfig, choices: Choices, change: Assignment, catalog: Catalog
) -> Iterator[Problem]:
    parent_key, _, name = change.key.rpartition(".")
    parent = OmegaConf.select(node, parent_key) if parent_key else node
    if not isinstance(parent, DictConfig) or name not in parent:
        yield unknown_key(node, choices, change, catalog)
        return
    del parent[name]


def _composition_problem(error: BaseException) -> Problem:
    """Hydra's own error on one line, with what caused it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.__cause__ is not None:
        lines += str(error.__cause__).splitlines()[:1]
    text = " ".join(lines[:4]).partition("Config search path:")[0]
    message = re.sub(r"\s+", " ", text).strip() or type(error).__name__
    return Problem("config", f"can't be composed: {message[:600]}")
