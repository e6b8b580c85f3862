"""Optimizers as specs: what is trained how, checked on the host.

Each driver turns a spec into its framework's update (`expkit.drivers.<framework>.optimizers`). The
specs mean the same numbers everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from expkit.core.errors import ConfigError, Problem

Patterns = str | Sequence[str] | None
"""Shell patterns over parameter paths, such as ``encoder.*``; None matches everything."""


def _selection_problems(spec: Optimizer | Native) -> Iterator[Problem]:
    """What is wrong with the two options that select parameters."""
    if spec.params is not None and not patterns_of(spec.params):
        message = (
            f"is {spec.params!r}; allowed: a pattern of parameter paths, a list of them, or null"
        )
        yield Problem("optimizer.params", message, "optimizer.params=encoder.*")
    for number, group in enumerate(spec.groups):
        key = f"optimizer.groups[{number}]"
        if not isinstance(group, Mapping) or not patterns_of(group.get("params")) or len(group) < 2:
            allowed = "a pattern as params, and the options that differ for what matches it"
            hint = "optimizer.groups=[{params:*.bias,weight_decay:0}]"
            yield Problem(key, f"is {group!r}; allowed: {allowed}", hint)


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """What every optimizer has.

    Attributes:
        lr: base learning rate; the schedule multiplies it.
        weight_decay: see the optimizer.
        params: patterns of the paths that this optimizer trains; None = all.
        groups: options that differ for some parameters, such as
            ``[{"params": "*.bias", "weight_decay": 0}]``; the first group that matches counts.
    """

    lr: float
    weight_decay: float = 0.0
    params: Patterns = None
    groups: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups or ()))
        problems = [
            *_unless(self, "lr", lambda x: x > 0, "a number above 0", 0.001),
            *_unless(self, "weight_decay", lambda x: x >= 0, "a number, at least 0", 0),
            *self._problems(),
            *_selection_problems(self),
        ]
        if problems:
            raise ConfigError(problems)

    def with_options(self, options: Mapping[str, Any], key: str) -> Optimizer:
        """The same optimizer for one group.

        Args:
            options: what differs.
            key: config key of the group, for errors.

        Raises:
            ConfigError: an option that it does not have, or a value that is not allowed.
        """
        selection = ("params", "groups")
        allowed = [option.name for option in fields(self) if option.name not in selection]
        for option in options:
            if option not in allowed:
                near = get_close_matches(option, allowed, n=1)
                meant = f"; did you mean {near[0]}?" if near else ""
                message = f"has the option {option!r}; allowed: params, {', '.join(allowed)}{meant}"
                raise ConfigError([Problem(key, message)])
        return replace(self, params=None, groups=(), **options)

    @abstractmethod
    def _problems(self) -> Iterator[Problem]:
        """What is wrong with the options of this optimizer alone."""


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent.

    With g = gradient + weight_decay * p (L2 regularisation, part of the gradient) and
    v = momentum * v + g (no dampening): p -= lr * v, or with Nesterov's momentum
    p -= lr * (g + momentum * v) (Sutskever et al. 2013).

    Attributes:
        momentum: share of the last update's direction that stays; 0 = none.
        nesterov: look ahead by the momentum; needs one.
    """

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False

    def _problems(self) -> Iterator[Problem]:
        yield from _unless(self, "momentum", _is_share, "a number, at least 0 and below 1", 0.9)
        nesterov: object = self.nesterov
        if not isinstance(nesterov, bool):
            message = f"is {nesterov!r}; allowed: true or false"
            yield Problem("optimizer.nesterov", message, "optimizer.nesterov=true")
        elif nesterov and self.momentum == 0:
            message = "is true, but without momentum it has no effect"
            yield Problem("optimizer.nesterov", message, "optimizer.momentum=0.9")


@dataclass(frozen=True, kw_only=True)
class _Adaptive(Optimizer):
    """The options that Adam and AdamW share."""

    lr: float = 1e-3
    betas: Sequence[float] = (0.9, 0.999)
    eps: float = 1e-8

    def _problems(self) -> Iterator[Problem]:
        betas = self.betas
        pair = isinstance(betas, Sequence) and len(betas) == 2 and all(map(_is_number, betas))
        if pair and all(map(_is_share, betas)):
            object.__setattr__(self, "betas", (float(betas[0]), float(betas[1])))
        else:
            message = f"is {betas!r}; allowed: two numbers, each at least 0 and below 1"
            yield Problem("optimizer.betas", message, "optimizer.betas=[0.9,0.999]")
        yield from _unless(self, "eps", lambda x: x > 0, "a number above 0", 1e-8)


@dataclass(frozen=True, kw_only=True)
class Adam(_Adaptive):
    """Adam with bias correction (Kingma and Ba 2015, algorithm 1).

    ``weight_decay`` is L2 regularisation: weight_decay * p is part of the gradient and is scaled
    with it. For decay that is not, take `AdamW`.

    Attributes:
        betas: decay rates of the averages of the gradient and of its square.
        eps: keeps the division finite.
    """


@dataclass(frozen=True, kw_only=True)
class AdamW(_Adaptive):
    """Adam with decoupled decay: p -= lr * weight_decay * p first (Loshchilov and Hutter 2019).

    Attributes:
        betas: decay rates of the averages of the gradient and of its square.
        eps: keeps the division finite.
    """

    weight_decay: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Native:
    """The framework's own optimizer, with the same selection of parameters as the others.

    Attributes:
        optimizer: the optimizer's class or a partial of it; takes the parameters.
        params: patterns of the paths that this optimizer trains; None = all.
        groups: arguments of ``optimizer`` that differ for some parameters.
    """

    optimizer: Callable[..., Any]
    params: Patterns = None
    groups: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups or ()))
        problems = list(_selection_problems(self))
        factory: object = self.optimizer
        if not callable(factory):
            allowed = "a spec of expkit.optimizers, or an optimizer class of the framework"
            message = f"is {factory!r}; allowed: {allowed}, as it is or as a partial"
            problems.append(Problem("optimizer", message, "+optimizer._partial_=true"))
        if problems:
            raise ConfigError(problems)

    def with_options(self, options: Mapping[str, Any], key: str) -> Native:  # noqa: ARG002
        """The same optimizer for one group, with ``options`` among its arguments."""
        return Native(optimizer=partial(self.optimizer, **options))


Spec = Optimizer | Native


def patterns_of(value: object) -> list[str]:
    """Patterns as a list; empty for what is none."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        return []
    return list(listed) if all(isinstance(item, str) and item for item in listed) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: float) -> bool:
    return 0 <= value < 1


def _unless(
    spec: Optimizer, option: str, holds: Callable[[float], bool], allowed: str, example: float
) -> Iterator[Problem]:
    """A problem unless the option is a number for which ``holds`` is true."""
    value = getattr(spec, option)
    if not _is_number(value) or not holds(value):
        message = f"is {value!r}; allowed: {allowed}"
        yield Problem(f"optimizer.{option}", message, f"optimizer.{option}={example}")
