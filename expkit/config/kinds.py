"""What a config value may be: Python's type hints, with constraints as their annotations."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from expkit.config.suggestion import listing, show
from expkit.core.errors import ConfigError
from expkit.core.period import Period

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
}
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class Constraint(ABC):
    """Narrows a type; written as ``Annotated[type, constraint]``."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value of the right type is also allowed."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is allowed; stands in place of the words for the type."""


@dataclass(frozen=True)
class Bounds(Constraint):
    """Limits of a number."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def accepts(self, value: Any) -> bool:
        """Whether the number lies within the limits."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    @property
    def words(self) -> str:
        """Such as ``at least 0 and below 1``."""
        limits = (
            ("at least", self.ge),
            ("above", self.gt),
            ("at most", self.le),
            ("below", self.lt),
        )
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)


@dataclass(frozen=True)
class Matches(Constraint):
    """Text of a form that a regular expression gives."""

    pattern: str
    words: str = ""

    def accepts(self, value: Any) -> bool:
        """Whether the whole text has the form."""
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class PeriodSyntax(Constraint):
    """How often something is done, see `expkit.core.period.Period`."""

    words: str = "steps such as 100, epochs such as 1ep"

    def accepts(self, value: Any) -> bool:
        """Whether `Period` takes it."""
        try:
            Period(value)
        except ConfigError:
            return False
        return True


@dataclass(frozen=True)
class DurationSyntax(Constraint):
    """Seconds, or such as ``1h30m``."""

    words: str = "seconds above 0, a time such as 1h30m"

    def accepts(self, value: Any) -> bool:
        """Whether it is a time above 0."""
        return (seconds(value) if isinstance(value, str) else float(value)) > 0


def seconds(text: str) -> float:
    """The seconds in a duration such as ``1d2h30m5s``; 0 for a text that is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0.0
    return float(
        sum(
            int(count or 0) * _UNITS[unit]
            for count, unit in zip(match.groups(), "dhms", strict=True)
        )
    )


def complaint(value: Any, hint: Any) -> str | None:
    """What is wrong with a value, or None where ``hint`` allows it."""
    if accepts(value, hint):
        return None
    null = "; null is written null" if value == "None" else ""
    return f"is {show(value)}{null}; allowed: {describe(hint)}"


def accepts(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that a type hint describes; a number is always finite."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, constraint = arguments
        return accepts(value, base) and bool(constraint.accepts(value))
    if origin in (Union, UnionType):
        return any(accepts(value, argument) for argument in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is list:
        return isinstance(value, list) and all(accepts(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            accepts(item, arguments[1]) for item in value.values()
        )
    if hint is Any:
        return True
    if isinstance(value, bool) and hint is not bool:
        return False
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if hint is str:
        return isinstance(value, str) and value != "None"
    return isinstance(value, hint)


def describe(hint: Any) -> str:
    """What a type hint allows, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, constraint = arguments
        if isinstance(constraint, Bounds):
            return f"{describe(base)}, {constraint.words}"
        return str(constraint.words)
    if origin in (Union, UnionType):
        *most, last = (describe(argument) for argument in arguments)
        return f"{', '.join(most)}, or {last}"
    if origin is Literal:
        return listing(arguments)
    if origin is list:
        return f"a list, each item {describe(arguments[0])}"
    if origin is dict:
        return f"names with values, each {describe(arguments[1])}"
    return _WORDS.get(hint, "any value")
