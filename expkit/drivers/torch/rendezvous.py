"""How the ranks of a run find each other: once in a process."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from expkit.core.errors import ConfigError, DriverError, Problem, RankError
from expkit.drivers import replicas
from expkit.drivers.torch.device import find_device
from expkit.drivers.torch.process_group import ProcessGroup
from expkit.launch.environment import STORE_FD, Place, has_agent_store, take_descriptor


@dataclass(frozen=True)
class _World:
    """The group that this process belongs to, until it ends."""

    local_rank: int
    backend: str
    device: torch.device
    timeout_s: float
    host: dist.ProcessGroup


c10d: Any = dist  # its stores are not in its annotations

_worlds: list[_World] = []
"""None or one: a process joins once."""


def join(
    place: Place | None,
    device: torch.device,
    backend: str | None = None,
    init_method: str | None = None,
    timeout_s: float = 600.0,
) -> ProcessGroup:
    """Join the other ranks, or find that this process has done so before.

    A group that the user has initialised is taken as it is, and is the user's to end.

    Args:
        place: this process's place; None where no launcher has given it one.
        device: where this rank computes.
        backend: of the gradients; None = nccl on CUDA devices, else gloo.
        init_method: a URL of torch.distributed in place of the store that the launcher names.
        timeout_s: how long a collective waits for the slowest rank.

    Raises:
        ConfigError: the process has joined before with another device or backend.
        DriverError: no launcher has started this process as a rank.
        RankError: the others did not come.
    """
    if not _worlds:
        chosen = backend or ("nccl" if device.type == "cuda" else "gloo")
        if not 0 < timeout_s < float("inf"):
            message = f"is {timeout_s!r}; allowed: seconds above 0"
            raise ConfigError([Problem("driver.timeout_s", message, "driver.timeout_s=600")])
        if dist.is_initialized():
            chosen = dist.get_backend()
        elif place is None:
            raise DriverError(
                "this process is no rank of a distributed run. Start the ranks by "
                "`python -m expkit driver=torch_ddp driver.num_processes=2`, or by "
                "`torchrun --nproc-per-node 2 ...`"
            )
        else:
            _init(place, device, chosen, init_method, timeout_s)
        _worlds.append(_describe(place, device, chosen, timeout_s))
    world = _worlds[0]
    _check_same(world, device, backend)
    return ProcessGroup(
        local_rank=world.local_rank, timeout_s=world.timeout_s, host=world.host, device=device
    )


def device_of_rank(device: Any, place: Place | None) -> torch.device:
    """The device of this rank, see `expkit.drivers.replicas.device_of_rank`."""
    found: torch.device = replicas.device_of_rank(device, place, find_device, "cuda")
    return found


def _init(
    place: Place, device: torch.device, backend: str, init_method: str | None, timeout_s: float
) -> None:
    limit = timedelta(seconds=timeout_s)
    if place.local_world_size == place.world_size and sys.platform == "linux":
        # All ranks are on this machine: gloo then listens for nobody else.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store = _store(place, limit) if init_method is None else _rendezvous(place, init_method)
        dist.init_process_group(
            backend,
            # What an earlier attempt of this run has left in the store is not for this one.
            store=c10d.PrefixStore(f"expkit/{place.attempt}", store),
            rank=place.rank,
            world_size=place.world_size,
            timeout=limit,
            device_id=device if backend == "nccl" else None,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RankError(
            f"rank {place.rank} of {place.world_size} could not join the others at "
            f"{init_method or f'{place.address}:{place.port}'} within "
            f"driver.timeout_s={timeout_s:g}: {reason}"
        ) from error
    except ValueError as error:
        message = f"is {backend!r}: {error}"
        raise ConfigError([Problem("driver.backend", message, "driver.backend=null")]) from error
    atexit.register(_leave)


def _store(place: Place, limit: timedelta) -> Any:
    """The key-value store by which ranks exchange their addresses, served by rank 0."""
    serves = place.rank == 0 and not has_agent_store()
    descriptor = _listening(place) if serves else None
    return c10d.TCPStore(
        place.address,
        place.port,
        place.world_size,
        is_master=serves,
        timeout=limit,
        wait_for_workers=False,
        **({} if descriptor is None else {"master_listen_fd": descriptor}),
    )


def _listening(place: Place) -> int | None:
    """A socket to serve the store on; None where torch shall open one, on all interfaces."""
    inherited = take_descriptor(STORE_FD)
    if inherited is not None or place.local_world_size != place.world_size:
        return inherited
    family, kind, protocol, _, address = socket.getaddrinfo(
        place.address, place.port, type=socket.SOCK_STREAM
    )[0]
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(place.world_size + 64)
        return listening.detach()


def _rendezvous(place: Place, init_method: str) -> Any:
    store, rank, world_size = next(
        iter(c10d.rendezvous(init_method, rank=place.rank, world_size=place.world_size))
    )
    if (rank, world_size) != (place.rank, place.world_size):
        message = (
            f"names rank {rank} of {world_size}, but this is {place.rank} of {place.world_size}"
        )
        raise ConfigError([Problem("driver.init_method", message, "driver.init_method=null")])
    return store


def _describe(place: Place | None, device: torch.device, backend: str, timeout_s: float) -> _World:
    """The group as it has been initialised, by us or by the user; a collective."""
    default = c10d.distributed_c10d._get_default_group()
    if "gloo" in backend and "nccl" not in backend:
        host = default
    else:
        host = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    return _World(
        local_rank=dist.get_rank() if place is None else place.local_rank,
        backend=backend,
        device=device,
        timeout_s=timeout_s,
        host=host,
    )


def _check_same(world: _World, device: torch.device, backend: str | None) -> None:
    """A process cannot join twice."""
    if world.device != device:
        message = (
            f"is {device}, but this process has joined the other ranks with {world.device}; "
            "allowed: the same device, or a process of its own"
        )
        raise ConfigError([Problem("driver.device", message, f"driver.device={world.device}")])
    if backend not in (None, world.backend):
        message = f"is {backend}, but this process has joined the other ranks over {world.backend}"
        raise ConfigError([Problem("driver.backend", message, f"driver.backend={world.backend}")])


def _leave() -> None:
    """End the group; after an error it is left alone, for its end might wait for the others."""
    if not dist.is_initialized() or getattr(sys, "last_value", None) is not None:
        return
    _worlds.clear()
    with suppress(RuntimeError):
        dist.destroy_process_group()
    # Its threads end with the last reference to it. One that is still letting go of a tensor when
    # the interpreter is gone would abort the process.
    gc.collect()
