"""Python objects between a process and its fork; large arrays in memory that both share.

The shared memory is files that have no name and lie in no directory, so that nothing is left of
them when both processes are gone, however they end, and no limit of /dev/shm holds for them.
"""

from __future__ import annotations

import array
import mmap
import os
import pickle
import socket
import struct
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

_INLINE_BYTES = 1 << 15  # what goes through the socket itself
_PACKET_BYTES = 1 << 16
_ALIGNMENT = 64
_MAX_HELD = 8  # blocks that the receiver's arrays may occupy; of further ones it makes copies
_HEAD = struct.Struct("<qQI")  # block or -1, size of the content, number of blocks given back
_NOWHERE = -1


class Packet(NamedTuple):
    """A message that is ready to be sent.

    Attributes:
        data: what goes through the socket.
        descriptors: of the block that the receiver does not know yet.
    """

    data: bytes
    descriptors: list[int]


class Channel:
    """One end of a connection between a process and its fork; both ends are used alike.

    What does not fit into a message lies in a block of shared memory. The receiver's arrays are
    views into it, writable and nobody else's; when the last of them is gone, the block goes back
    with the receiver's next message, to be used again: memory that is in use already is several
    times as fast as fresh memory.

    Args:
        connection: of the type SOCK_SEQPACKET.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._own: list[_Block] = []
        self._free: list[int] = []
        self._theirs: dict[int, mmap.mmap] = {}
        self._given_back: deque[int] = deque()
        self._num_held = 0

    def pack(self, value: Any) -> Packet:
        """A message with this value.

        Raises:
            Exception: the value cannot be pickled.
        """
        parts, size = _parts_of(value)
        block, content = _NOWHERE, b""
        descriptors: list[int] = []
        if size > _INLINE_BYTES:
            block, descriptors = self._fill(parts, size)
        else:
            content = b"".join(parts)
        back = [self._given_back.popleft() for _ in range(len(self._given_back))]
        head = _HEAD.pack(block, size, len(back)) + np.array(back, dtype=np.int64).tobytes()
        return Packet(head + content, descriptors)

    def send(self, packet: Packet, wait: bool = True) -> bool:
        """Send a message; without waiting, whether there was room for it."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", packet.descriptors))
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            self.connection.sendmsg([packet.data], [rights] if packet.descriptors else [], flags)
        except BlockingIOError:
            return False
        return True

    def receive(self) -> Any:
        """The value of the next message; waits for it.

        Raises:
            EOFError: the other end is closed.
        """
        data, descriptors, *_ = socket.recv_fds(
            self.connection, _PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            raise EOFError
        block, size, num_back = _HEAD.unpack_from(data)
        start = _HEAD.size + 8 * num_back
        self._free += np.frombuffer(data[_HEAD.size : start], dtype=np.int64).tolist()
        if block == _NOWHERE:
            return _value_of(memoryview(bytearray(data[start:])))
        for descriptor in descriptors:
            self._theirs[block] = mmap.mmap(descriptor, 0)
            os.close(descriptor)
        return _value_of(self._content(block, size))

    def close(self) -> None:
        """Close the connection; arrays that were received stay."""
        self.connection.close()
        for block in self._own:
            os.close(block.descriptor)
        self._own, self._theirs = [], {}

    def _fill(self, parts: Sequence[Any], size: int) -> tuple[int, list[int]]:
        """Write into a block of ours; returns which, and its descriptor where it has changed."""
        large = [number for number in self._free if self._own[number].capacity >= size]
        if large:
            number = min(large, key=lambda each: self._own[each].capacity)
        elif self._free:
            number = max(self._free, key=lambda each: self._own[each].capacity)
        else:
            number = len(self._own)
            self._own.append(_Block(os.memfd_create("batch")))
            self._free.append(number)
        self._free.remove(number)
        block = self._own[number]
        is_changed = block.capacity < size
        if is_changed:
            block.capacity = size + size // 4  # for those that are a little larger
            os.truncate(block.descriptor, block.capacity)
        os.lseek(block.descriptor, 0, os.SEEK_SET)
        with open(block.descriptor, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
        return number, [block.descriptor] if is_changed else []

    def _content(self, number: int, size: int) -> memoryview:
        """The content of a block of theirs."""
        content: Any = np.frombuffer(self._theirs[number], dtype=np.uint8, count=size)
        if self._num_held >= _MAX_HELD:
            self._given_back.append(number)
            return memoryview(content.copy())
        self._num_held += 1
        weakref.finalize(content, self._give_back, number).atexit = False
        return memoryview(content)

    def _give_back(self, number: int) -> None:
        self._num_held -= 1
        self._given_back.append(number)


class _Block:
    """A piece of shared memory, on the side of its owner."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.capacity = 0


def _parts_of(value: Any) -> tuple[list[Any], int]:
    """What is to be written for a value, and how many bytes that is.

    First number and sizes of the contents, then these, each at a multiple of the alignment: the
    value without its arrays, and each of them.
    """
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    contents = [memoryview(rest), *(buffer.raw() for buffer in buffers)]
    sizes = [len(contents), *(content.nbytes for content in contents)]
    parts: list[Any] = [np.array(sizes, dtype=np.int64).tobytes()]
    size = len(parts[0])
    for content in contents:
        gap = -size % _ALIGNMENT
        parts += [bytes(gap), content]
        size += gap + content.nbytes
    return parts, size


def _value_of(memory: memoryview) -> Any:
    """The value that `_parts_of` has taken apart; its arrays are views of the memory."""
    rest, *buffers = _contents_of(memory)
    return pickle.loads(rest, buffers=buffers)


def _contents_of(memory: memoryview) -> Iterator[memoryview]:
    count = int.from_bytes(memory[:8], "little")
    place = 8 * (count + 1)
    for size in np.frombuffer(memory[8:place], dtype=np.int64).tolist():
        place += -place % _ALIGNMENT
        yield memory[place : place + size]
        place += size
