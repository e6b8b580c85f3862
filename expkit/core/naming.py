"""What a class, a function or a partial of one is called in messages."""

from __future__ import annotations

from functools import partial


def name_of(given: object) -> str:
    """Module and name of a class or function; of another object those of its class.

    Args:
        given: what a user gave; partials, those of Hydra too, stand for what they call.
    """
    while isinstance(given, partial):
        given = given.func
    named = given if hasattr(given, "__qualname__") else type(given)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("builtins.")
