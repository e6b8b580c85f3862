"""Which objects a config may name as a ``_target_``.

A config may come from someone else, and a target is code that will be called. Hence a target must
be one of these:

- a public class or function of the packages of expkit that hold parts (`PARTS`);
- a public class, not a function, of the packages listed in `CLASSES` (layers, optimizers, metrics
  and samplers of the frameworks);
- anything public of the user's own code: a module below the working directory, or one whose
  distribution declares it under the entry-point group ``expkit.targets``.

The rule is applied to the path before anything is imported, and again to the place where the object
that was found is really defined: ``my_model.os.system`` is refused because it is ``posix.system``.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Collection
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path

PARTS = (
    "expkit.callbacks",
    "expkit.checkpoint",
    "expkit.core.store",
    "expkit.core.trainer",
    "expkit.data",
    "expkit.drivers",
    "expkit.losses",
    "expkit.metrics",
    "expkit.models",
    "expkit.optimizers",
    "expkit.run.board",
    "expkit.run.csv",
    "expkit.schedules",
)
"""Packages and modules of expkit whose classes and functions are parts of an experiment."""
CLASSES = (
    "torch.nn",
    "torch.optim",
    "torch.utils.data.sampler",
    "torchmetrics",
    "paddle.io",
    "paddle.nn",
    "paddle.optimizer",
    "paddle.metric",
)
"""Packages of other people whose classes may be used; their functions may not."""
REEXPORTS = ("torch.utils.data",)
"""Packages under whose names classes of `CLASSES` are known, though they are defined elsewhere."""
ENTRY_POINTS = "expkit.targets"
"""The entry-point group by which an installed package declares that its objects may be targets."""


def is_public(path: str) -> bool:
    """Whether a path has at least a module and a name, and leads through nothing private."""
    parts = path.split(".")
    return len(parts) > 1 and all(
        part.isidentifier() and not part.startswith("_") for part in parts
    )


def is_allowed(path: str) -> bool:
    """Whether what is found or defined at a dotted path may be a target."""
    top = path.partition(".")[0]
    if top in sys.stdlib_module_names:
        return False
    if top == "expkit":
        return is_below(path, PARTS)
    if top in {package.partition(".")[0] for package in CLASSES}:
        return is_below(path, CLASSES) or path.rpartition(".")[0] in REEXPORTS
    return _is_users(top) or top in _declared()


def is_below(path: str, packages: Collection[str]) -> bool:
    """Whether a dotted path leads into one of some packages."""
    return any(path.startswith(f"{package}.") for package in packages)


def find_module(top: str) -> ModuleSpec | None:
    """Where a top-level module is, without importing it; None where it is nowhere."""
    try:
        # Asked of the path first: special finders may do more than find (setuptools' own, for pip).
        return PathFinder.find_spec(top) or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None


def _is_users(top: str) -> bool:
    """Whether a top-level module lies below the working directory, but was not installed there."""
    module = sys.modules.get(top)
    spec = find_module(top) if module is None else module.__spec__
    places = [getattr(module, "__file__", None)]
    if spec is not None:
        places += [spec.origin, *(spec.submodule_search_locations or ())]
    here = Path.cwd().resolve()
    for path in (Path(place) for place in places if place):
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if path.is_absolute() and path.resolve().is_relative_to(here) and not installed:
            return True
    return False


@functools.cache
def _declared() -> frozenset[str]:
    """The top-level packages that installed distributions declare."""
    return frozenset(
        point.value.partition(":")[0].partition(".")[0]
        for point in entry_points(group=ENTRY_POINTS)
    )
