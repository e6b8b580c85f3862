"""Memory of big host arrays, used again: a state is copied into what the last copy has left.

The system clears each page of new memory when it is first touched, which takes several times as
long as the copy itself; and a state is copied while training stands still.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class HostMemory:
    """Gives arrays that nobody has to give back: their memory is used again when they are gone.

    It never holds more than was once in use at the same time: where sizes change, what was not
    asked for the longest makes room. Any thread may ask, and the last reference to an array may end
    in any thread.

    Args:
        least_bytes: smaller arrays are ordinary ones.
    """

    def __init__(self, least_bytes: int = 1 << 20) -> None:
        self.least_bytes = least_bytes
        self._lock = threading.Lock()
        # A lease ends at any place, also inside `_take`: it only puts its block in here.
        self._gone: deque[mmap.mmap] = deque()
        self._free: dict[int, list[mmap.mmap]] = {}  # by size, the last asked for at the end
        self._in_use_bytes = self._free_bytes = self._peak_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all memory that it holds, in use or free."""
        return self._in_use_bytes + self._free_bytes

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """A C-contiguous array of any content."""
        dtype = np.dtype(dtype)
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes < self.least_bytes:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._take(num_bytes)
            gone = self._gone
        # Whatever still sees the memory, a slice, a tensor or a memoryview, keeps the lease: NumPy
        # shortens the way from a view to what it is a view of, but not past a memoryview.
        lease = np.frombuffer(block, np.uint8)
        weakref.finalize(lease, gone.append, block).atexit = False
        return np.frombuffer(lease.data, dtype).reshape(shape)

    def copy(self, array: NDArray[Any]) -> NDArray[Any]:
        """A C-contiguous copy."""
        copied = self.empty(array.shape, array.dtype)
        np.copyto(copied, array)
        return copied

    def release(self) -> None:
        """Forget all: what is free goes, and what is in use will go when it is no more."""
        with self._lock:
            self._gone, self._free = deque(), {}  # leases of before put theirs where nobody looks
            self._in_use_bytes = self._free_bytes = self._peak_bytes = 0

    def _take(self, num_bytes: int) -> mmap.mmap:
        while self._gone:
            block = self._gone.popleft()
            self._free.setdefault(len(block), []).append(block)
            self._in_use_bytes -= len(block)
            self._free_bytes += len(block)
        fitting = self._free[num_bytes] = self._free.pop(num_bytes, [])
        self._in_use_bytes += num_bytes
        self._peak_bytes = max(self._peak_bytes, self._in_use_bytes)
        if fitting:
            self._free_bytes -= num_bytes
            return fitting.pop()
        while self._in_use_bytes + self._free_bytes > self._peak_bytes:
            self._drop_one()
        # Begins with a page, which copies need to be fast, and goes back to the system in the end.
        return mmap.mmap(-1, num_bytes, _PRIVATE)

    def _drop_one(self) -> None:
        """Let go of the free block whose size was not asked for the longest."""
        size, blocks = next(iter(self._free.items()))
        if blocks:
            blocks.pop()
            self._free_bytes -= size
        if not blocks:
            del self._free[size]


HOST_MEMORY = HostMemory()
"""That of the process: like any memory, what one model has left serves the next."""
