"""Where the ranks of one machine meet: ports on loopback that no other run can take meanwhile."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from expkit.launch.environment import STORE_FD, Place, paddle_variables, torch_variables

Framework = Literal["torch", "paddle"]

LOOPBACK = "127.0.0.1"
_LISTENING = "0A"
_TICK_S = 0.01


class Rendezvous(ABC):
    """How the ranks of a framework find each other.

    Args:
        world_size: how many there are.
        attempt: how often they were started before.

    Attributes:
        main_descriptors: what the process of rank 0 inherits.
    """

    main_descriptors: Sequence[int] = ()

    def __init__(self, world_size: int, attempt: int) -> None:
        self._world_size = world_size
        self._attempt = attempt

    @abstractmethod
    def variables(self, rank: int) -> dict[str, str]:
        """What the environment of a rank says about its place."""

    @abstractmethod
    def started(self, rank: int) -> None:
        """A rank has been started, and has what it inherits."""

    @abstractmethod
    def close(self) -> None:
        """Give the ports back."""

    def _place(self, rank: int, port: int) -> Place:
        return Place(
            launcher="expkit",
            rank=rank,
            world_size=self._world_size,
            local_rank=rank,
            local_world_size=self._world_size,
            address=LOOPBACK,
            port=port,
            attempt=self._attempt,
        )


class TorchRendezvous(Rendezvous):
    """Rank 0 inherits a socket that listens already: whoever comes early waits in its queue."""

    def __init__(self, world_size: int, attempt: int) -> None:
        super().__init__(world_size, attempt)
        self._socket = socket.create_server((LOOPBACK, 0), backlog=max(128, 2 * world_size))
        self._port = self._socket.getsockname()[1]
        self.main_descriptors = (self._socket.fileno(),)

    def variables(self, rank: int) -> dict[str, str]:
        """Those that torch reads, and for rank 0 the socket."""
        variables = torch_variables(self._place(rank, self._port))
        return variables | {STORE_FD: str(self._socket.fileno())} if rank == 0 else variables

    def started(self, rank: int) -> None:
        """The socket is rank 0's now: it closes when that ends, and its peers see it."""
        if rank == 0:
            self._socket.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class PaddleRendezvous(Rendezvous):
    """Paddle opens the port itself, so it is kept free for it.

    A socket that is bound with SO_REUSEADDR and does not listen keeps the kernel from giving its
    port to anybody who asks for a free one, and lets him listen who names the port, as Paddle does.
    """

    def __init__(self, world_size: int, attempt: int) -> None:
        super().__init__(world_size, attempt)
        self._sockets = [socket.socket() for _ in range(world_size)]
        for held in self._sockets:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((LOOPBACK, 0))
        self._ports = [held.getsockname()[1] for held in self._sockets]

    def variables(self, rank: int) -> dict[str, str]:
        """Those that Paddle reads."""
        endpoints = [f"{LOOPBACK}:{port}" for port in self._ports]
        return paddle_variables(self._place(rank, self._ports[0]), endpoints)

    def started(self, rank: int) -> None:
        """The ports are kept until the end."""

    def close(self) -> None:
        """Give the ports back."""
        for held in self._sockets:
            held.close()


def open_rendezvous(framework: Framework, world_size: int, attempt: int) -> Rendezvous:
    """The rendezvous of a framework."""
    kinds: Mapping[Framework, type[TorchRendezvous | PaddleRendezvous]]
    kinds = {"torch": TorchRendezvous, "paddle": PaddleRendezvous}
    return kinds[framework](world_size, attempt)


def is_listening(port: int) -> bool:
    """Whether anybody on this machine listens on a TCP port; nobody is connected to."""
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        lines = path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ()
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def wait_until_listening(port: int, timeout_s: float) -> None:
    """Return when anybody on this machine listens on a TCP port, or time is up."""
    end = time.monotonic() + timeout_s
    while not is_listening(port) and time.monotonic() < end:
        time.sleep(_TICK_S)
