"""The door of Paddle's key-value store: who comes too early sleeps, and it is never shut."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from expkit.launch.rendezvous import wait_until_listening


def wait_for_listener(timeout_s: float) -> None:
    """Wait until the store on this machine is served: Paddle itself looks every three seconds."""
    wait_until_listening(_port(), timeout_s)


def shut_listener() -> None:
    """Let nobody into the store any more, when all ranks are in.

    Paddle listens on all addresses of the machine, and asks nobody who he is. In the listener's
    place comes a socket at which nothing ever arrives: closed or shut down, it would keep Paddle's
    thread busy. Where the system does not list a process's descriptors, the door stays open.
    """
    port = _port()
    for descriptor in _sockets():
        with suppress(OSError):  # closed meanwhile
            with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                listens = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                is_at_port = listens and duplicate.getsockname()[1:2] == (port,)
            if is_at_port:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
                    os.dup2(silent.fileno(), descriptor, inheritable=False)


def _port() -> int:
    """Where the store is served, by the same rules as Paddle's own."""
    env = os.environ
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return int(env["MASTER_PORT"])
    end = env.get("PADDLE_MASTER") or env["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
    return int(end.rpartition(":")[2])


def _sockets() -> list[int]:
    """The descriptors of this process that are sockets."""
    folder = Path("/proc/self/fd")
    found = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                found.append(int(entry.name))
    return found
