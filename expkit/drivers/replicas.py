"""What replicas of a model on several ranks have in common, whatever the framework."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from expkit.core.binding import Binding, Call
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


class GradientExchange(ABC):
    """Sums gradients over ranks that hold the same model.

    Attributes:
        loss_factor: losses are multiplied with it, because the exchange divides by it.
    """

    loss_factor: float

    @abstractmethod
    def training(self, model: Any, binding: Binding) -> Call:
        """The call of a placed model in training."""

    @abstractmethod
    def begin(self, sync: bool) -> None:
        """Get ready for a forward; ``sync``: it is the last one of its window."""

    @abstractmethod
    def exchange(
        self, parameters: Sequence[Any], passengers: Sequence[Any], notice: bool | None
    ) -> tuple[Sequence[Any], bool]:
        """After the last backward of a window: sum, and let the group answer its flags.

        Args:
            parameters: whose gradients are summed.
            passengers: tensors that are summed on the way.
            notice: a flag; None where no rank has one.

        Returns:
            The sums of the passengers, and whether any rank gave notice.
        """


Exchange = Callable[[Sequence[Any], "bool | None"], tuple[Sequence[Any], bool]]
"""Sums tensors over the ranks together with the gradients; tells whether any rank gave notice."""


class SharedBuffers(ABC):
    """Makes the buffers of a model follow all ranks, from window to window.

    A floating-point buffer becomes its value before the window + the mean over the ranks of what
    each rank has added to it; one of another type becomes that of rank 0. Only buffers that change
    are sent: those that some rank has changed once, and the statistics of norms.

    Attributes:
        exist: whether the model has any.
    """

    exist: bool
    _is_in_window = False

    def begin(self) -> None:
        """Before each forward: at the first of a window remember the values."""
        if not self._is_in_window:
            self._is_in_window = True
            if self.exist:
                self._remember()

    def follow(self, exchange: Exchange) -> None:
        """At the end of a window let the changes travel with the gradients, and follow them.

        Args:
            exchange: called once, also where there is nothing to send.
        """
        self._is_in_window = False
        if not self.exist:
            exchange((), None)
            return
        sums, noticed = exchange(self._changes(), self._notice())
        self._take(sums, noticed)

    @abstractmethod
    def _remember(self) -> None:
        """Remember the values before a window."""

    @abstractmethod
    def _changes(self) -> Sequence[Any]:
        """What this rank has added to the buffers in the window, flat, by type."""

    @abstractmethod
    def _notice(self) -> bool:
        """Whether a buffer has changed which is not sent yet."""

    @abstractmethod
    def _take(self, sums: Sequence[Any], noticed: bool) -> None:
        """Follow the changes of all ranks.

        Args:
            sums: those of `_changes`.
            noticed: whether any rank gave notice.
        """


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
