"""Who am I among the processes of a run: read from the environment, and written into it.

Four ways to start ranks are understood: expkit's own supervisor, ``torchrun``,
``python -m paddle.distributed.launch`` and Slurm's ``srun``. This module is the only one that reads
or writes the variables by which they tell a process its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from expkit.core.errors import ConfigError, Problem

SUPERVISED = "EXPKIT_CONTROL_FD"
"""Set in ranks that expkit's own supervisor has started: the pipe by which they report to it."""

STACKS_FD = "EXPKIT_STACKS_FD"
"""Beside it: the pipe into which the stacks of a rank that hangs or crashes are written."""

STORE_FD = "EXPKIT_STORE_FD"
"""The listening socket on which rank 0 serves torch's rendezvous; inherited, so no port clashes."""

_SLURM_PORTS = range(15000, 25000)


@dataclass(frozen=True)
class Place:
    """A process's place among the ranks of a run.

    Attributes:
        launcher: who started it: ``expkit``, ``torchrun``, ``paddle`` or ``slurm``.
        rank: its number over all machines.
        world_size: processes in all.
        local_rank: its number on its machine.
        local_world_size: processes on its machine.
        address: host of rank 0.
        port: where rank 0 serves the rendezvous.
        attempt: how often the launcher has started the ranks before.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    address: str
    port: int
    attempt: int = 0

    @property
    def is_supervised(self) -> bool:
        """Whether expkit's own supervisor started this process."""
        return self.launcher == "expkit"


def find_place(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place; None where no launcher has started it as a rank.

    Raises:
        ConfigError: a launcher's variables are incomplete.
    """
    env = os.environ if environment is None else environment
    try:
        if SUPERVISED in env:
            return _from_torch(env, "expkit") if "RANK" in env else _from_paddle(env, "expkit")
        if "RANK" in env and "WORLD_SIZE" in env:
            return _from_torch(env, "torchrun")
        if "PADDLE_TRAINER_ID" in env and "PADDLE_TRAINER_ENDPOINTS" in env:
            return _from_paddle(env, "paddle")
        # Only steps of srun count: in a batch script, and in a shell that srun opened, there is
        # one task, which starts the run as anybody would.
        if int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in env:
            return _from_slurm(env)
    except (LookupError, ValueError) as error:
        message = (
            f"the launcher's variables are incomplete: {error}. Where no launcher has started this "
            "process, take them out: env -u RANK -u WORLD_SIZE -u SLURM_STEP_NUM_TASKS ..."
        )
        raise ConfigError([Problem("environment", message)]) from error
    return None


def torch_variables(place: Place) -> dict[str, str]:
    """The variables from which torch, and tools around it, read a place."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "EXPKIT_ATTEMPT": str(place.attempt),
    }


def paddle_variables(place: Place, endpoints: list[str]) -> dict[str, str]:
    """The variables from which Paddle reads a place.

    Args:
        place: of one rank.
        endpoints: ``host:port`` of each rank; the first is where the rendezvous is served.
    """
    return {
        "PADDLE_TRAINER_ID": str(place.rank),
        "PADDLE_TRAINERS_NUM": str(place.world_size),
        "PADDLE_RANK_IN_NODE": str(place.local_rank),
        "PADDLE_LOCAL_SIZE": str(place.local_world_size),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[place.rank],
        "PADDLE_MASTER": f"{place.address}:{place.port}",
        "EXPKIT_ATTEMPT": str(place.attempt),
    }


def has_agent_store(environment: Mapping[str, str] | None = None) -> bool:
    """Whether torchrun's agent serves the rendezvous, so that rank 0 must not."""
    env = os.environ if environment is None else environment
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def without_place(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of torch and Paddle that tell a process its place."""
    nowhere = Place("", 0, 1, 0, 1, "", 0)
    names = torch_variables(nowhere).keys() | paddle_variables(nowhere, [""]).keys()
    return {name: value for name, value in environment.items() if name not in names}


def take_descriptor(name: str, environment: MutableMapping[str, str] | None = None) -> int | None:
    """A file descriptor that was inherited under ``name``, given once; None where there is none."""
    env = os.environ if environment is None else environment
    text = env.pop(name, None)
    return None if text is None else int(text)


def _from_torch(env: Mapping[str, str], launcher: str) -> Place:
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    return Place(
        launcher=launcher,
        rank=rank,
        world_size=size,
        local_rank=int(env.get("LOCAL_RANK", rank)),
        local_world_size=int(env.get("LOCAL_WORLD_SIZE", size)),
        address=env["MASTER_ADDR"],
        port=int(env["MASTER_PORT"]),
        attempt=int(env.get("EXPKIT_ATTEMPT", env.get("TORCHELASTIC_RESTART_COUNT", "0"))),
    )


def _from_paddle(env: Mapping[str, str], launcher: str) -> Place:
    endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
    rank = int(env["PADDLE_TRAINER_ID"])
    address, _, port = env.get("PADDLE_MASTER", endpoints[0]).rpartition(":")
    return Place(
        launcher=launcher,
        rank=rank,
        world_size=int(env["PADDLE_TRAINERS_NUM"]),
        local_rank=int(env.get("PADDLE_RANK_IN_NODE", rank)),
        local_world_size=int(env.get("PADDLE_LOCAL_SIZE", len(endpoints))),
        address=address,
        port=int(port),
        attempt=int(env.get("EXPKIT_ATTEMPT", "0")),
    )


def _from_slurm(env: Mapping[str, str]) -> Place:
    size = int(env["SLURM_STEP_NUM_TASKS"])
    # The same on all tasks of a step, and another one for most other steps on the machine.
    step = 31 * int(env["SLURM_JOB_ID"]) + int(env.get("SLURM_STEP_ID", "0"))
    port = _SLURM_PORTS[step % len(_SLURM_PORTS)]
    tasks = _tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE", str(size)))
    return Place(
        launcher="slurm",
        rank=int(env["SLURM_PROCID"]),
        world_size=size,
        local_rank=int(env["SLURM_LOCALID"]),
        local_world_size=tasks[int(env.get("SLURM_NODEID", "0"))],
        address=env.get("MASTER_ADDR", first_host(env["SLURM_STEP_NODELIST"])),
        port=int(env.get("MASTER_PORT", port)),
        attempt=int(env.get("SLURM_RESTART_COUNT", "0")),
    )


def _tasks_per_node(text: str) -> list[int]:
    """Slurm's short form of numbers: ``2(x3),1`` is 2, 2, 2, 1."""
    tasks = []
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        tasks += [int(count)] * int(times or "1")
    return tasks


def first_host(nodes: str) -> str:
    """The first host of Slurm's short form of a list: ``gpu-[003-007,9],cpu1`` is ``gpu-003``."""
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise ValueError(f"{nodes!r} names no host")
    return "".join(part or "" for part in found.groups())
