"""What replicas of a model on several ranks have in common, whatever the framework."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from expkit.core.collective import Collective
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.launch.environment import Place

GradientSync = Literal["auto", "flat", "native"]
"""How gradients travel: in one buffer, by the framework's own wrapper, or as suits the model."""

HIDDEN_STEP = (
    "the model is wrapped already, and its wrapper cannot reach train_step: its forward is called "
    "instead. Hand over the plain model to use train_step"
)

_ONE_BUCKET_BYTES = 25 * 2**20
"""Up to here a wrapper would have one bucket, and nothing to do while it travels."""


def check_gradient_sync(gradient_sync: str, wrapper_options: Sequence[str]) -> None:
    """Check how gradients shall travel.

    Args:
        gradient_sync: one of `GradientSync`.
        wrapper_options: config keys of what is given for the framework's wrapper.

    Raises:
        ConfigError: no such way, or options without effect.
    """
    if gradient_sync not in get_args(GradientSync):
        message = f"is {gradient_sync!r}; allowed: {', '.join(get_args(GradientSync))}"
        raise ConfigError([Problem("driver.gradient_sync", message, "driver.gradient_sync=auto")])
    if wrapper_options and gradient_sync == "flat":
        message = "has no effect with driver.gradient_sync=flat, which uses no wrapper"
        hint = "driver.gradient_sync=native"
        raise ConfigError([Problem(key, message, hint) for key in wrapper_options])


def is_flat(
    gradient_sync: str, gradient_bytes: int, find_unused: bool, has_wrapper_options: bool
) -> bool:
    """Whether gradients travel in one buffer; ``auto`` decides by their size.

    Args:
        gradient_sync: one of `GradientSync`.
        gradient_bytes: size of all gradients.
        find_unused: whether parameters may be without gradient, for which the buffer is exact.
        has_wrapper_options: whether something is given for the framework's wrapper.
    """
    if gradient_sync != "auto":
        return gradient_sync == "flat"
    return not has_wrapper_options and (find_unused or gradient_bytes <= _ONE_BUCKET_BYTES)


def check_same_model(parts: Sequence[Any], group: Collective) -> None:
    """Make sure that all ranks have built the same model, but for its numbers; a collective.

    Args:
        parts: a description of each parameter and buffer of this rank's.
        group: the ranks.

    Raises:
        DriverError: the ranks have built different models.
    """
    others = group.all_gather(zlib.crc32(repr(parts).encode()))
    different = [rank for rank, other in enumerate(others) if other != others[0]]
    if different:
        raise DriverError(
            f"the ranks have built different models: ranks {different} have other parameters, "
            "buffers, shapes or types than rank 0, or have frozen others"
        )


def names_of(model: Any, parameters: Sequence[Any]) -> str:
    """The paths of some of a model's parameters, as an error shows them."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    shown = [paths.get(id(parameter), "?") for parameter in parameters[:5]]
    return ", ".join(shown) + (f" and {len(parameters) - 5} more" if len(parameters) > 5 else "")


def device_of_rank(device: Any, place: Place | None, find: Callable[[Any], Any], kind: str) -> Any:
    """The device of this rank.

    Args:
        device: ``auto`` or -1 (an accelerator for each rank where there are some, else the CPU),
            ``cpu``, ``cuda`` or ``gpu``, or a list with one entry for each rank of this machine: a
            number or a name.
        place: this process's place.
        find: gives the framework's device of a name, and the first accelerator for ``auto``.
        kind: what the framework calls an accelerator.

    Raises:
        ConfigError: not a device, not there, or fewer than ranks.
    """
    number = 0 if place is None else place.local_rank
    if isinstance(device, str) or not hasattr(device, "__iter__"):
        name = {-1: "auto", "gpu": kind, "cuda": kind}.get(device, device)
        if name in ("auto", kind) and str(find("auto")) != "cpu":
            return find(f"{kind}:{number}")
        if isinstance(name, str) and ":" in name and place is not None and place.world_size > 1:
            message = f"is {device!r}, one device for {place.world_size} ranks; allowed: a list"
            raise ConfigError([Problem("driver.device", message, "driver.device=[0,1]")])
        return find(name)
    entries = list(device)
    if number >= len(entries):
        message = f"is {entries}, which leaves nothing for rank {number} of this machine"
        hint = f"driver.num_processes={len(entries)}"
        raise ConfigError([Problem("driver.device", message, hint)])
    entry = entries[number]
    return find(entry if isinstance(entry, str) else f"{kind}:{entry}")
