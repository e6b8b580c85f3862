"""What the optimizers of all drivers share: names, parameter groups, rates, shape of the state."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from expkit.core.errors import ConfigError, MismatchError, Problem
from expkit.core.naming import name_of
from expkit.optimizers import Native, Optimizer, Patterns, Spec, patterns_of

logger = logging.getLogger(__name__)


class Update(ABC):
    """How one group of parameters is updated.

    Attributes:
        paths: the parameters' paths.
        base_rates: base learning rates; one, but where a native optimizer has groups of its own.
    """

    paths: Sequence[str]
    base_rates: Sequence[float]

    @abstractmethod
    def step(self, factor: float) -> None:
        """Update the parameters that have a gradient, each with its base rate * ``factor``."""

    @abstractmethod
    def state(self, copies: bool) -> dict[str, Any]:
        """The accumulators by ``<path>/<accumulator>`` as host arrays; see `Driver.state`."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave; the paths are known to be this group's.

        Raises:
            MismatchError: other accumulators, or other shapes.
        """


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are updated alike.

    Attributes:
        optimizer: number of the optimizer it belongs to.
        spec: the optimizer, with the options of this group.
        paths: the parameters' paths.
        key: config key of the optimizer, for errors.
    """

    optimizer: int
    spec: Spec
    paths: tuple[str, ...]
    key: str


class OptimizerSetBase(ABC):
    """The optimizers of a model, stepped together.

    Args:
        optimizers: None, a spec of `expkit.optimizers`, a native optimizer's class or partial, or a
            mapping name -> either. A single one is called ``default``.
        named_parameters: the model's parameters by path; frozen ones are left out.

    Attributes:
        names: names of the optimizers, in order.
        parameters: the parameters that are trained.

    Raises:
        ConfigError: an optimizer of another framework, nothing to train, a pattern that matches
            nothing, a parameter in two optimizers.
    """

    def __init__(self, optimizers: Any, named_parameters: Mapping[str, Any]) -> None:
        specs = _by_name(optimizers)
        trainable = {p: tensor for p, tensor in named_parameters.items() if self._trains(tensor)}
        groups = assign_parameters(specs, list(trainable))
        self.names = list(specs)
        self.parameters = [trainable[path] for group in groups for path in group.paths]
        self._updates = [
            (group.optimizer, self._update(group, [trainable[path] for path in group.paths]))
            for group in groups
        ]
        self._factors: Sequence[float] = [1.0] * len(specs)
        self._warn_about_the_rest(trainable, groups)

    @abstractmethod
    def _trains(self, parameter: Any) -> bool:
        """Whether a parameter is not frozen."""

    @abstractmethod
    def _update(self, group: ParameterGroup, parameters: list[Any]) -> Update:
        """The update of a group in this framework."""

    @abstractmethod
    def zero(self) -> None:
        """Clear the gradients: there are none afterwards."""

    def step(self, factors: Sequence[float]) -> None:
        """Update the parameters.

        Args:
            factors: one per optimizer; each multiplies the base rates of its groups.
        """
        if len(factors) != len(self.names):
            raise ValueError(f"{len(factors)} factors for the optimizers {', '.join(self.names)}")
        for optimizer, update in self._updates:
            update.step(factors[optimizer])
        self._factors = factors

    def learning_rates(self) -> dict[str, float]:
        """The rates of the last update, base rates before the first.

        Returns:
            ``lr`` where there is one; else ``lr/<optimizer>``, or ``lr/<optimizer>/<group>`` where
            that one has several groups.
        """
        rates: dict[str, float] = {}
        for number, name in enumerate(self.names):
            own = [base for index, u in self._updates if index == number for base in u.base_rates]
            prefix = f"lr/{name}"
            if len(own) == 1:
                rates["lr" if len(self.names) == 1 else prefix] = own[0] * self._factors[number]
            else:
                rates |= {f"{prefix}/{i}": lr * self._factors[number] for i, lr in enumerate(own)}
        return rates

    def state(self, copies: bool = True) -> dict[str, dict[str, Any]]:
        """The accumulators by optimizer and ``<path>/<accumulator>``; see `Driver.state`."""
        state: dict[str, dict[str, Any]] = {name: {} for name in self.names}
        for optimizer, update in self._updates:
            state[self.names[optimizer]] |= update.state(copies)
        return state

    def load_state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take back what ``state`` gave, before the first step or at any later time.

        Raises:
            MismatchError: other optimizers, parameters, accumulators or shapes; names the first.
        """
        if set(state) != set(self.names):
            there, here = ", ".join(sorted(state)) or "none", ", ".join(self.names) or "none"
            raise MismatchError(f"the checkpoint has other optimizers: {there}; here: {here}")
        for number, name in enumerate(self.names):
            updates = [update for optimizer, update in self._updates if optimizer == number]
            parts: list[dict[str, Any]] = [{} for _ in updates]
            homes = {path: part for part, u in zip(parts, updates, strict=True) for path in u.paths}
            for entry, value in state[name].items():
                path = entry.rpartition("/")[0]
                if path not in homes:
                    message = (
                        f"optimizer {name} does not train {path}, whose state is in the checkpoint"
                    )
                    raise MismatchError(message)
                homes[path][entry] = value
            for update, part in zip(updates, parts, strict=True):
                try:
                    update.load_state(part)
                except MismatchError as error:
                    raise MismatchError(f"state of optimizer {name}: {error}") from error

    def _warn_about_the_rest(
        self, trainable: Mapping[str, Any], groups: Sequence[ParameterGroup]
    ) -> None:
        assigned = {path for group in groups for path in group.paths}
        rest = [path for path in trainable if path not in assigned]
        if self.names and rest:
            shown = ", ".join(rest[:5]) + (" ..." if len(rest) > 5 else "")
            logger.warning("no optimizer trains %d of the parameters: %s", len(rest), shown)


def assign_parameters(specs: Mapping[str, Spec], paths: Sequence[str]) -> list[ParameterGroup]:
    """Give each parameter its optimizer and its group.

    Args:
        specs: the optimizers by name.
        paths: the parameters that can be trained.

    Returns:
        The groups that have parameters, optimizer by optimizer; in each first what no group names.

    Raises:
        ConfigError: nothing to train, a pattern without effect, a parameter in two optimizers.
    """
    if specs and not paths:
        message = "has no parameter to train: it has none at all, or all are frozen"
        raise ConfigError([Problem("model", message)])
    owners: dict[str, str] = {}
    groups: list[ParameterGroup] = []
    for number, (name, spec) in enumerate(specs.items()):
        key = "optimizer" if list(specs) == ["default"] else f"optimizer.{name}"
        own = _select(spec.params, paths, f"{key}.params", "trainable parameter")
        twice = next((path for path in own if path in owners), None)
        if twice is not None:
            message = f"trains {twice}, and so does {owners[twice]}; each needs its own patterns"
            hint = f"+{key}.params={twice.partition('.')[0]}.*"
            raise ConfigError([Problem(key, message, hint)])
        owners |= dict.fromkeys(own, name)
        groups += _split(number, spec, own, key)
    return groups


def _by_name(optimizers: Any) -> dict[str, Spec]:
    if optimizers is None:
        return {}
    named = optimizers if isinstance(optimizers, Mapping) else {"default": optimizers}
    if not named:
        raise ConfigError([Problem("optimizer", "names no optimizer", "optimizer=adam")])
    return {
        str(name): spec if isinstance(spec, Optimizer | Native) else Native(optimizer=spec)
        for name, spec in named.items()
    }


def _split(number: int, spec: Spec, paths: Sequence[str], key: str) -> Iterator[ParameterGroup]:
    """The parameters of one optimizer by group; the first group that matches counts."""
    rest = list(paths)
    made = []
    for index, group in enumerate(spec.groups):
        group_key = f"{key}.groups[{index}]"
        _select(group["params"], paths, group_key, "parameter of this optimizer")
        own = [path for path in rest if _matches(group["params"], path)]
        rest = [path for path in rest if path not in own]
        if not own:
            message = f"is {group['params']!r}, all of which earlier groups have taken"
            raise ConfigError([Problem(group_key, message)])
        options = {option: value for option, value in group.items() if option != "params"}
        special = spec.with_options(options, group_key)
        made.append(ParameterGroup(number, special, tuple(own), key))
    if rest:
        yield ParameterGroup(number, spec.with_options({}, key), tuple(rest), key)
    yield from made


def _select(patterns: Patterns, paths: Sequence[str], key: str, what: str) -> list[str]:
    """The paths that match; each pattern must match one."""
    for pattern in () if patterns is None else patterns_of(patterns):
        if not _matches(pattern, *paths):
            there = ", ".join(paths[:8]) + (" ..." if len(paths) > 8 else "")
            message = f"is {pattern!r}, which matches no {what}; there are: {there}"
            raise ConfigError([Problem(key, message)])
    return [path for path in paths if patterns is None or _matches(patterns, path)]


def _matches(patterns: Patterns, *paths: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns_of(patterns) for path in paths)


def native_of(
    group: ParameterGroup, framework: str, kind: Any, *args: Any, **arguments: Any
) -> Any:
    """Make a native optimizer.

    Args:
        group: whose spec is a `Native`.
        framework: the top-level package it must come from.
        kind: the framework's base class of optimizers.
        *args: the parameters, where the framework has them first.
        **arguments: the parameters, where the framework has a name for them.

    Raises:
        ConfigError: an optimizer of another framework, something else, or wrong options.
    """
    spec = group.spec
    if not isinstance(spec, Native):
        raise refused(group, type(spec).__name__, framework)
    name = name_of(spec.optimizer)
    package = name.partition(".")[0]
    if package in ("torch", "paddle") and package != framework:
        raise refused(group, name, framework)
    try:
        native = spec.optimizer(*args, **arguments)
    except (TypeError, ValueError, AssertionError) as error:
        message = f"{name} refuses its options: {error}"
        raise ConfigError([Problem(group.key, message)]) from error
    if not isinstance(native, kind):
        raise refused(group, f"{name}, which gives {type(native).__name__}", framework)
    closure = inspect.signature(native.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise refused(group, f"{name}, which computes the loss in each step again", framework)
    return native


def refused(group: ParameterGroup, given: str, framework: str) -> ConfigError:
    """The error for an optimizer that a framework does not have."""
    allowed = "SGD, Adam or AdamW of expkit.optimizers"
    if framework != "numpy":
        allowed += f", or an optimizer of {framework}"
    home = given.partition(".")[0]
    whose = f", an optimizer of {home}" if home in ("torch", "paddle") else ""
    message = f"is {given}{whose}; the driver is {framework}, allowed: {allowed}"
    return ConfigError([Problem(group.key, message, "optimizer=adam")])
