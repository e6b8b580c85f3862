"""Refuses an argument that a callback cannot work with."""

from __future__ import annotations

from typing import NoReturn

from expkit.core.errors import ConfigError, Problem


def refuse(callback: str, argument: str, value: object, allowed: str, example: object) -> NoReturn:
    """Raise the error that names the key, the value, what is allowed and an override that mends it.

    Args:
        callback: the callback's name in the config.
        argument: the name of its argument.
        value: what was given.
        allowed: what may be given, in words.
        example: a value that works.
    """
    key = f"callbacks.{callback}.{argument}"
    raise ConfigError([Problem(key, f"is {value!r}; allowed: {allowed}", f"{key}={example}")])
