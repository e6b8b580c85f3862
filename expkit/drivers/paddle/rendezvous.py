"""How the ranks of a run find each other: once in a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.distributed import fleet

from expkit.core.errors import ConfigError, DriverError, Problem, RankError
from expkit.drivers import replicas
from expkit.drivers.paddle.device import find_device
from expkit.drivers.paddle.listener import shut_listener, wait_for_listener
from expkit.drivers.paddle.meeting import Meeting, meet
from expkit.drivers.paddle.process_group import ProcessGroup
from expkit.drivers.paddle.quiet import quiet_start
from expkit.drivers.paddle.strategy import check_fleet, distributed_strategy
from expkit.launch.environment import Place, paddle_variables


@dataclass(frozen=True)
class _World:
    """The group that this process belongs to, until it ends."""

    local_rank: int
    backend: str
    device: str
    meeting: Meeting


_worlds: list[_World] = []
"""None or one: a process joins once."""


def join(
    place: Place | None,
    device: str,
    backend: str | None = None,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 600.0,
) -> ProcessGroup:
    """Join the other ranks, or find that this process has done so before.

    A group that the user has initialised is taken as it is.

    Args:
        place: this process's place; None where no launcher has given it one.
        device: where this rank computes, as Paddle names it.
        backend: of paddle.distributed; None = nccl on GPUs, else gloo.
        options: ``role_maker`` and ``strategy`` of fleet.
        timeout_s: how long ranks wait for the slowest of them.

    Raises:
        ConfigError: the process has joined before with another device or backend.
        DriverError: no launcher has started this process as a rank.
        RankError: the others did not come.
    """
    options = dict(options or {})
    check_fleet(options)
    if not 0 < timeout_s < float("inf"):
        message = f"is {timeout_s!r}; allowed: seconds above 0"
        raise ConfigError([Problem("driver.timeout_s", message, "driver.timeout_s=600")])
    if not _worlds:
        chosen = _backend_for(device, backend)
        try:
            if not dist.is_initialized():
                _init(_checked(place), device, chosen, options, timeout_s)
            meeting = meet(_address(place), timeout_s)
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().rpartition("\n")[2]
            where = "" if place is None else f", rank {place.rank} of {place.world_size},"
            raise RankError(f"this process{where} could not join the others: {reason}") from error
        local_rank = dist.get_rank() if place is None else place.local_rank
        _worlds.append(_World(local_rank, dist.get_backend().lower(), device, meeting))
    world = _worlds[0]
    _check_same(world, device, backend)
    return ProcessGroup(local_rank=world.local_rank, timeout_s=timeout_s, meeting=world.meeting)


def device_of_rank(device: Any, place: Place | None) -> str:
    """The device of this rank, see `expkit.drivers.replicas.device_of_rank`."""
    found: str = replicas.device_of_rank(device, place, find_device, "gpu")
    return found


def _backend_for(device: str, backend: str | None) -> str:
    """The backend; each serves one kind of device."""
    right = "gloo" if device == "cpu" else "nccl"
    if backend not in (None, right):
        message = f"is {backend!r}, but the device is {device}; allowed: null or {right}"
        raise ConfigError([Problem("driver.backend", message, "driver.backend=null")])
    return right


def _checked(place: Place | None) -> Place:
    if place is None or place.launcher == "torchrun":
        raise DriverError(
            "this process is no rank of a distributed run of Paddle. Start the ranks by "
            "`python -m expkit driver=paddle_fleet driver.num_processes=2`, by "
            "`python -m paddle.distributed.launch --nproc_per_node 2 ...`, or by srun"
        )
    return place


def _address(place: Place | None) -> str | None:
    """Rank 0's machine; None where all ranks are on one."""
    if place is not None:
        return None if place.local_world_size == place.world_size else place.address
    hosts = [end.rpartition(":")[0] for end in dist.ParallelEnv().trainer_endpoints]
    return hosts[0] if len(set(hosts)) > 1 else None


def _init(
    place: Place, device: str, backend: str, options: Mapping[str, Any], timeout_s: float
) -> None:
    is_local = place.local_world_size == place.world_size and sys.platform == "linux"
    _prepare_environment(place, device, backend, timeout_s, is_local)
    if is_local and place.rank > 0:
        wait_for_listener(timeout_s)
    role_maker = options.get("role_maker")
    with quiet_start():
        if role_maker is None and not options.get("strategy"):
            dist.init_parallel_env()  # fleet makes ten more groups, for other kinds of training
        else:
            strategy = distributed_strategy(options)
            fleet.init(role_maker, is_collective=True, strategy=strategy, log_level="ERROR")
    shut_listener()
    if role_maker is None:
        return
    named = (fleet.worker_index(), fleet.worker_num())
    if named != (place.rank, place.world_size):
        message = (
            f"names rank {named[0]} of {named[1]}, but this is {place.rank} of {place.world_size}"
        )
        raise ConfigError(
            [Problem("driver.fleet.role_maker", message, "driver.fleet.role_maker=null")]
        )


def _prepare_environment(
    place: Place, device: str, backend: str, timeout_s: float, is_local: bool
) -> None:
    """Set what Paddle reads from the environment when it joins, where the launcher did not."""
    if place.launcher == "slurm":
        # Only the first address is used; the others are told apart by it.
        ends = [f"{place.address}:{place.port + rank}" for rank in range(place.world_size)]
        os.environ.update(paddle_variables(place, ends))
    os.environ["PADDLE_DISTRI_BACKEND"] = backend
    os.environ.setdefault("FLAGS_stop_check_timeout", str(max(1, round(timeout_s))))
    os.environ.setdefault("PADDLE_PG_TIMEOUT", str(round(1000 * timeout_s)))
    if is_local:
        # All ranks are on this machine: gloo then listens for nobody else.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device != "cpu":
        os.environ["FLAGS_selected_gpus"] = device.partition(":")[2]  # noqa: SIM112 - its name
        paddle.set_device(device)


def _check_same(world: _World, device: str, backend: str | None) -> None:
    """A process cannot join twice: Paddle does not know how to begin anew."""
    if world.device != device:
        message = (
            f"is {device}, but this process has joined the other ranks with {world.device}; "
            "allowed: the same device, or a process of its own"
        )
        raise ConfigError([Problem("driver.device", message, f"driver.device={world.device}")])
    if backend not in (None, world.backend):
        message = f"is {backend}, but this process has joined the other ranks over {world.backend}"
        raise ConfigError([Problem("driver.backend", message, f"driver.backend={world.backend}")])
