"""Where ranks wait for each other for as long as it takes, and notice who is gone.

What they tell each other on the host travels with it. Paddle's own barrier gives up after 30
seconds, whatever one of the ranks has to do, and asking its key-value store costs 44 ms each time.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle.distributed as dist

from expkit.core.errors import RankError

_TOKEN_BYTES, _RANK_BYTES = 16, 4
_LOOPBACK = "127.0.0.1"
_HEADER = struct.Struct("!HQ")
"""The lengths of a purpose and of a message, which follow."""

Merge = Callable[[Sequence[bytes]], bytes]


class Meeting:
    """A connection of each rank to rank 0.

    Args:
        rank: this rank.
        world_size: all of them.
        links: by rank: on rank 0 to all others, on these to rank 0.
    """

    def __init__(self, rank: int, world_size: int, links: Mapping[int, socket.socket]) -> None:
        self.rank = rank
        self.world_size = world_size
        self._links = dict(links)

    def wait(self, purpose: str, timeout_s: float) -> None:
        """Return when all ranks have called it; see `exchange` for arguments and errors."""
        self.exchange(purpose, b"", b"".join, timeout_s)

    def exchange(self, purpose: str, message: bytes, merge: Merge, timeout_s: float) -> bytes:
        """Bring the messages of all ranks together.

        Args:
            purpose: what for, as the errors say it; the same on all ranks.
            message: this rank's.
            merge: makes the answer of the messages in the order of ranks. Only rank 0 calls it.
            timeout_s: how long to wait for the slowest rank.

        Returns:
            The answer, the same on all ranks.

        Raises:
            RankError: a rank is gone, did not come in time, or came for another purpose.
        """
        if self.rank == 0:
            answer = merge([message, *self._receive(purpose, timeout_s)])
            self._send(purpose, answer)
            return answer
        self._send(purpose, message)
        (answer,) = self._receive(purpose, timeout_s)
        return answer

    def _send(self, purpose: str, message: bytes) -> None:
        """The same to all links."""
        name = purpose.encode()
        data = b"".join((_HEADER.pack(len(name), len(message)), name, message))
        for rank, link in self._links.items():
            try:
                link.sendall(data)
            except OSError as error:
                raise self._lost(purpose, rank) from error

    def _receive(self, purpose: str, timeout_s: float) -> list[bytes]:
        """One message over each link, in the order of ranks."""
        end = time.monotonic() + timeout_s
        received: dict[int, bytes] = {}
        with selectors.DefaultSelector() as selector:
            for rank, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, rank)
            while len(received) < len(self._links):
                ready = selector.select(max(0.0, end - time.monotonic()))
                if not ready:
                    missing = sorted(self._links.keys() - received.keys())
                    late = f"ranks {missing}" if self.rank == 0 else "another rank"
                    raise RankError(
                        f"{purpose}: rank {self.rank} of {self.world_size} waited for "
                        f"{timeout_s:g} s (driver.timeout_s), but {late} did not come"
                    )
                for key, _ in ready:
                    received[key.data] = self._take(purpose, key.data)
                    selector.unregister(key.fileobj)
        return [received[rank] for rank in self._links]

    def _take(self, purpose: str, rank: int) -> bytes:
        """The message that has begun to arrive from a rank."""
        name_length, length = _HEADER.unpack(self._read(purpose, rank, _HEADER.size))
        name = self._read(purpose, rank, name_length).decode()
        if name != purpose:
            raise RankError(
                f"{purpose}: rank {self.rank} of {self.world_size} came for it, but rank {rank} "
                f"for {name}: all ranks must call the same collectives in the same order"
            )
        return self._read(purpose, rank, length)

    def _read(self, purpose: str, rank: int, length: int) -> bytes:
        data = bytearray(length)
        rest = memoryview(data)
        while rest:
            try:
                count = self._links[rank].recv_into(rest)
            except OSError as error:
                raise self._lost(purpose, rank) from error
            if not count:
                raise self._lost(purpose, rank)
            rest = rest[count:]
        return bytes(data)

    def _lost(self, purpose: str, rank: int) -> RankError:
        return RankError(
            f"{purpose}: rank {self.rank} of {self.world_size} waited for the others, but rank "
            f"{rank} is gone"
        )


def meet(address: str | None, timeout_s: float) -> Meeting:
    """Connect the ranks of the process group; all call it.

    Args:
        address: of rank 0's machine; None = all ranks are on one, and nobody else is let in.
        timeout_s: how long to wait for the slowest rank.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        with socket.create_server((_LOOPBACK if address is None else "", 0)) as server:
            token = secrets.token_bytes(_TOKEN_BYTES)
            dist.broadcast_object_list([(server.getsockname()[1], token)], 0)
            links = _accept(server, token, world_size, timeout_s)
    else:
        told: list[Any] = [None]
        dist.broadcast_object_list(told, 0)
        port, token = told[0]
        link = socket.create_connection((address or _LOOPBACK, port), timeout_s)
        link.sendall(token + rank.to_bytes(_RANK_BYTES, "big"))
        links = {0: link}
    for link in links.values():
        link.settimeout(timeout_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Meeting(rank, world_size, links)


def _accept(
    server: socket.socket, token: bytes, world_size: int, timeout_s: float
) -> dict[int, socket.socket]:
    """A link to each other rank; whoever does not know the token is sent away."""
    end = time.monotonic() + timeout_s
    links: dict[int, socket.socket] = {}
    while len(links) < world_size - 1:
        server.settimeout(max(0.01, end - time.monotonic()))
        link, _ = server.accept()
        link.settimeout(max(0.01, end - time.monotonic()))
        greeting = link.recv(_TOKEN_BYTES + _RANK_BYTES, socket.MSG_WAITALL)
        if hmac.compare_digest(greeting[:_TOKEN_BYTES], token):
            links[int.from_bytes(greeting[_TOKEN_BYTES:], "big")] = link
        else:
            link.close()
    return dict(sorted(links.items()))
