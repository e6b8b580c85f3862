"""What of fleet's own options reaches data parallel training, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.distributed import fleet
from paddle.distributed.fleet.base.role_maker import RoleMakerBase

from expkit.core.errors import ConfigError, Problem

_KEY = "driver.fleet"

_OPTIONS = ("is_collective", "role_maker", "strategy")

_STRATEGY: dict[str, type] = {
    "fuse_grad_size_in_MB": int,
    "last_comm_group_size_MB": float,
    "find_unused_parameters": bool,
}
"""All that has an effect on data parallel training in dynamic graphs."""

_ELSEWHERE = {
    "amp": "driver.precision=fp16",
    "amp_configs": "driver.precision=fp16",
    "gradient_merge": "trainer.accumulate=4",
    "gradient_merge_configs": "trainer.accumulate=4",
    "lamb": "optimizer=lamb",
}
"""What expkit has under a name of its own."""

_WRAPPER = {
    "fuse_grad_size_in_MB": "comm_buffer_size",
    "last_comm_group_size_MB": "last_comm_buffer_size",
}
"""What fleet hands on to `paddle.DataParallel`."""


def check_fleet(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for options of fleet that are unknown, wrong, or without effect."""
    problems = [
        Problem(f"{_KEY}.{key}", f"is not known; allowed: {', '.join(_OPTIONS)}")
        for key in options
        if key not in _OPTIONS
    ]
    role_maker: Any = options.get("role_maker")
    is_maker = isinstance(role_maker, RoleMakerBase)
    if role_maker is not None and not is_maker:
        kind = f"{type(role_maker).__module__}.{type(role_maker).__qualname__}"
        message = f"is {kind}; allowed: null, or a role maker of paddle.distributed.fleet"
        problems.append(Problem(f"{_KEY}.role_maker", message, f"{_KEY}.role_maker=null"))
    if not options.get("is_collective", True) or (is_maker and not role_maker._is_collective):
        message = (
            "is false, which means parameter servers: they train asynchronously, and no two ranks "
            "hold the same weights; this driver exchanges gradients among equals. Allowed: true"
        )
        problems.append(Problem(f"{_KEY}.is_collective", message, f"{_KEY}.is_collective=true"))
    problems += _strategy_problems(dict(options.get("strategy") or {}))
    if problems:
        raise ConfigError(problems)


def _strategy_problems(strategy: Mapping[str, Any]) -> list[Problem]:
    problems = []
    value: Any
    for name, value in strategy.items():
        key = f"{_KEY}.strategy.{name}"
        kind = _STRATEGY.get(name)
        if kind is None:
            message = (
                "has no effect on data parallel training in dynamic graphs; "
                f"allowed: {', '.join(_STRATEGY)}"
            )
            problems.append(Problem(key, message, _ELSEWHERE.get(name, "")))
        elif kind is bool:
            if not isinstance(value, bool):
                problems.append(Problem(key, f"is {value!r}; allowed: true, false"))
        elif type(value) not in (int, kind) or not value > 0:
            number = "a whole number" if kind is int else "a number"
            problems.append(Problem(key, f"is {value!r}; allowed: {number} above 0, in MB"))
    return problems


def distributed_strategy(options: Mapping[str, Any]) -> fleet.DistributedStrategy:
    """Fleet's object for ``driver.fleet.strategy``."""
    strategy = fleet.DistributedStrategy()
    for name, value in dict(options.get("strategy") or {}).items():
        setattr(strategy, name, value)
    return strategy


def wrapper_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What ``driver.fleet.strategy`` says about `paddle.DataParallel`."""
    strategy = dict(options.get("strategy") or {})
    return {_WRAPPER[name]: value for name, value in strategy.items() if name in _WRAPPER}


def looks_for_unused(options: Mapping[str, Any]) -> bool:
    """Whether ``driver.fleet.strategy`` says that parameters may be without gradient."""
    return bool(dict(options.get("strategy") or {}).get("find_unused_parameters", False))
