"""Turns a composed config into plain values, and says what an interpolation lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from expkit.config.catalog import Catalog
from expkit.config.limits import MAX_DEPTH, MAX_INTERPOLATIONS
from expkit.config.suggestion import listing
from expkit.core.errors import Problem

Choices = Mapping[str, str]

_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def resolve(
    node: DictConfig, choices: Choices, catalog: Catalog, refused: Collection[str] = ()
) -> tuple[dict[str, Any], list[Problem]]:
    """The plain values of a config that can be resolved, and a problem for each other one.

    Between two groups of which one's choice was refused no reference is a problem: the option that
    stands there was not chosen.
    """
    resolver = _Resolver(node, choices, catalog, refused)
    return resolver.mapping(node, ""), resolver.problems


class _Resolver:
    def __init__(
        self, root: DictConfig, choices: Choices, catalog: Catalog, refused: Collection[str]
    ) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._choices = choices
        self._catalog = catalog
        self._refused = frozenset(refused)
        self._interpolations = 0

    def mapping(self, node: DictConfig, path: str) -> dict[str, Any]:
        """The entries that have a value."""
        result = {}
        for name in node:
            text = str(name)
            found, value = self._entry(node, name, f"{path}.{text}" if path else text)
            if found:
                result[text] = value
        return result

    def _entry(self, node: DictConfig | ListConfig, name: Any, key: str) -> tuple[bool, Any]:
        self._interpolations += OmegaConf.is_interpolation(node, name)
        if self._interpolations > MAX_INTERPOLATIONS or key.count(".") > MAX_DEPTH:
            self._give_up(key)
            return False, None
        if OmegaConf.is_missing(node, name):
            self.problems.append(Problem(key, "has no value yet (???); give one", f"{key}=..."))
            return False, None
        try:
            value = node[name]
        except (OmegaConfBaseException, RecursionError, ValueError) as error:
            self.problems += self._unresolved(node, name, key, error)
            return False, None
        if isinstance(value, DictConfig):
            return True, self.mapping(value, key)
        if isinstance(value, ListConfig):
            entries = (
                self._entry(value, number, f"{key}.{number}") for number in range(len(value))
            )
            return True, [entry for found, entry in entries if found]
        return True, value

    def _give_up(self, key: str) -> None:
        """Say once that the config grows without end."""
        if not any(problem.key == "config" for problem in self.problems):
            message = (
                f"has more than {MAX_INTERPOLATIONS} interpolations, or keys nested more than "
                f"{MAX_DEPTH} deep, at {key[:60]}"
            )
            self.problems.append(Problem("config", message))

    def _unresolved(
        self, node: DictConfig | ListConfig, name: Any, key: str, error: BaseException
    ) -> Iterator[Problem]:
        raw = node._get_node(name)
        text = str(raw._value()) if raw is not None and hasattr(raw, "_value") else ""
        for reference in _REFERENCE.findall(text):
            try:
                lacks = OmegaConf.select(self._root, reference, default=None) is None
            except OmegaConfBaseException:
                continue
            if lacks:
                groups = {key.split(".")[0], reference.split(".")[0]}
                if not groups <= set(self._catalog.groups) or not groups & self._refused:
                    yield self._lacking(key, reference)
                return
        reason = (
            "it refers to itself"
            if isinstance(error, RecursionError)
            else str(error).splitlines()[0]
        )
        yield Problem(key, f"{text[:80]} can't be resolved: {reason[:200]}")

    def _lacking(self, key: str, reference: str) -> Problem:
        """A key that is referred to and is not there: names both options and where it would be."""
        user, group = key.split(".")[0], reference.split(".")[0]
        who = f"{user}={self._choices[user]}" if user in self._choices else "it"
        where = f"{group}={self._choices[group]}" if group in self._choices else "the config"
        options = self._catalog.with_key(group, reference.partition(".")[2])
        used = self._catalog.used_with(user, self._choices.get(user, ""))
        options.sort(key=lambda option: (group, option) not in used)  # what fits comes first
        message = f"{who} needs {reference}, which {where} lacks"
        if options:
            message += f"; {listing(f'{group}={option}' for option in options)} would have it"
        return Problem(key, message, f"{group}={options[0]}" if options else "")
