"""Finds what a ``_target_`` names and checks its arguments, before anything is built."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from expkit.config.allowance import CLASSES, PARTS, find_module, is_allowed, is_below, is_public
from expkit.config.suggestion import listing, nearest, show
from expkit.core.errors import ConfigError, Problem

_DIRECTIVES = frozenset({"_target_", "_partial_", "_args_", "_convert_", "_recursive_"})
_ALLOWED = (
    "allowed: parts of expkit, framework classes, and your own modules in the working directory"
)


def locate(target: str, key: str, file: str = "") -> Callable[..., Any]:
    """The class or function that a target names.

    Args:
        target: dotted path.
        key: config key of the node, for errors.
        file: config file that the node comes from, for errors.

    Raises:
        ConfigError: not allowed, not there, or its module fails to import; the cause is named and
            chained.
    """
    where = f"{key}._target_" + (f" ({file})" if file else "")
    if not (is_public(target) and is_allowed(target)):
        raise ConfigError([_refusal(where, target)])
    found = _import(target, where)
    if not callable(found):
        raise ConfigError([Problem(where, f"{target} is {show(found)}, which can't be called")])
    name = getattr(found, "__qualname__", type(found).__name__)
    home = f"{getattr(found, '__module__', None)}.{name}"
    if not is_allowed(home) or (is_below(home, CLASSES) and not isinstance(found, type)):
        raise ConfigError(
            [Problem(where, f"{target} is {home}, which may not be a target; {_ALLOWED}")]
        )
    return found  # type: ignore[no-any-return]


def check_call(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    key: str,
    supplied: Collection[str] = (),
) -> None:
    """Check that a class or function takes these arguments and lacks none.

    Args:
        function: what will be called.
        arguments: keyword arguments of the config; ``_args_`` counts as positional, other
            directives are left out.
        key: config key of the node, for errors.
        supplied: further keyword arguments that the caller will add where they are taken.

    Raises:
        ConfigError: names every unknown argument with the nearest right one, and what is missing.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in classes need not have one; the call itself will tell
    parameters = signature.parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    by_name = [
        n
        for n, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    name = getattr(function, "__qualname__", str(function))
    problems = []
    given = [argument for argument in arguments if argument not in _DIRECTIVES]
    for argument in given:
        if argument not in by_name and not takes_any:
            near = nearest(argument, by_name)
            meant = f" (did you mean {near}?)" if near else ""
            message = f"{name} takes no such argument{meant}; it takes: {listing(by_name)}"
            problems.append(Problem(f"{key}.{argument}", message))
    added = [argument for argument in supplied if argument in by_name or takes_any]
    if not problems:
        problems = list(_missing(signature, arguments, key, name, [*given, *added]))
    if problems:
        raise ConfigError(problems)


def check_targets(
    config: Mapping[str, Any],
    *,
    supplied: Mapping[str, Collection[str]] | None = None,
    consumed: Mapping[str, Collection[str]] | None = None,
    files: Mapping[str, str] | None = None,
) -> None:
    """Check every target of a resolved config and the arguments given to it; calls none.

    Args:
        config: the config, or a part of it.
        supplied: arguments that the builder adds to the nodes of a group, by group.
        consumed: keys that the builder takes out of the nodes of a group, by group.
        files: the config file of each group, for errors.

    Raises:
        ConfigError: holds every problem.
    """
    problems: list[Problem] = []
    for key, node in _nodes(config, ""):
        group = key.split(".")[0]
        taken = (consumed or {}).get(group, ())
        arguments = {name: value for name, value in node.items() if name not in taken}
        try:
            function = locate(str(node["_target_"]), key, (files or {}).get(group, ""))
            check_call(function, arguments, key, (supplied or {}).get(group, ()))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


def _nodes(node: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every node that has a target, outer ones first."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield key, node
        for name, child in node.items():
            yield from _nodes(child, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for number, child in enumerate(node):
            yield from _nodes(child, f"{key}.{number}")


def _missing(
    signature: inspect.Signature,
    arguments: Mapping[str, Any],
    key: str,
    name: str,
    names: Collection[str],
) -> Iterator[Problem]:
    bind = signature.bind_partial if arguments.get("_partial_") else signature.bind
    try:
        bind(*arguments.get("_args_", ()), **dict.fromkeys(names))
    except TypeError as error:
        yield Problem(key, f"{name}: {error}; give it as +{key}.NAME=VALUE or in the config file")


def _refusal(where: str, target: str) -> Problem:
    top, _, _ = target.partition(".")
    package, _, name = target.rpartition(".")
    near = nearest(package, (*PARTS, *CLASSES))
    if near and near != package and near.partition(".")[0] == top:
        return Problem(
            where, f"{show(target)} may not be a target; did you mean {near}.{name}? {_ALLOWED}"
        )
    if top.isidentifier() and top not in sys.modules and find_module(top) is None:
        return Problem(where, f"there is no module {show(top)}; {_ALLOWED}: {Path.cwd()}")
    return Problem(where, f"{show(target)} may not be a target; {_ALLOWED}")


def _import(target: str, where: str) -> Any:
    """Import the longest part of a path that is a module, and take the rest from it."""
    parts = target.split(".")
    module: Any = None
    used = 0
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise _import_error(where, name, error) from error
            break
        except Exception as error:
            raise _import_error(where, name, error) from error
        used = count
    if module is None:
        raise ConfigError([Problem(where, f"there is no module {parts[0]}")])
    found = module
    for number, part in enumerate(parts[used:], used):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ConfigError([_absent(where, parts, number, found, error)]) from error
        except Exception as error:
            raise _import_error(where, ".".join(parts[: number + 1]), error) from error
    return found


def _import_error(where: str, module: str, error: BaseException) -> ConfigError:
    reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    message = f"{module} can't be imported: {reason}"
    return ConfigError([Problem(where, message)])


def _absent(
    where: str, parts: list[str], number: int, holder: Any, error: AttributeError
) -> Problem:
    """A name that a module or class lacks; where the module says why, its own words."""
    path, name = ".".join(parts[:number]), parts[number]
    own_words = str(error)
    if "has no attribute" not in own_words:
        return Problem(where, own_words)
    near = nearest(name, [each for each in dir(holder) if not each.startswith("_")])
    meant = f"; did you mean {path}.{near}?" if near else ""
    return Problem(where, f"{path} has no {name}{meant}")
