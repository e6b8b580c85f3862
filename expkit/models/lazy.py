"""Exports that are imported at first use, so that one model does not pay for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package (PEP 562).

    Args:
        package: name of the package.
        modules: exported name -> module of the package that defines it.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - this is what the package binds it to
        if name not in modules:
            allowed = ", ".join(modules)
            raise AttributeError(f"{package} has no attribute {name!r}; allowed: {allowed}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return __getattr__
