"""Whether the framework of a driver can be imported, found out without importing it."""

from __future__ import annotations

from importlib.util import find_spec

from expkit.core.errors import ConfigError, Problem

FRAMEWORKS = ("torch", "paddle")
"""The frameworks that are installed by an extra of the same name."""


def check_installed(framework: str) -> None:
    """Check that a framework is there.

    Raises:
        ConfigError: it is not; says how to install it.
    """
    if framework not in FRAMEWORKS or _is_there(framework):
        return
    message = f"{framework} is not installed; install it by: pip install 'expkit[{framework}]'"
    raise ConfigError([Problem(f"driver={framework}", message, "driver=numpy")])


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
