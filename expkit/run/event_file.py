"""The file format that TensorBoard reads: length-prefixed records, each with checksums.

Format: TensorFlow's ``tensorflow/core/lib/io/record_writer.h`` (length as uint64, its masked
CRC-32C, the data, its masked CRC-32C, all little-endian). TensorBoard has a writer of its own, but
importing it costs a tenth of a second more, and it learns of a failed write in another thread.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from pathlib import Path

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected; RFC 3720, appendix B.4
_MASK_DELTA = 0xA282EAD8
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C of ``data``, rotated and offset so that checksums of checksums stay sound."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


class EventFile:
    """A new event file that sorts after all others of its directory, as they are read in order.

    Args:
        directory: made where it is absent.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        names = (entry.name for entry in directory.iterdir())
        numbers = [int(match[1]) for match in map(_NAME.match, names) if match]
        # The system's clock may have been set back since the last file.
        number = max([int(time.time()), *(number + 1 for number in numbers)])
        name = f"events.out.tfevents.{number:010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = directory / name
        self._file = self.path.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        """Append one record.

        Raises:
            OSError: it could not be written whole.
        """
        length = struct.pack("<Q", len(data))
        record = b"".join(
            (
                length,
                struct.pack("<I", masked_crc32c(length)),
                data,
                struct.pack("<I", masked_crc32c(data)),
            )
        )
        while record:
            record = record[self._file.write(record) :]

    def close(self) -> None:
        """Release the file; safe to call twice."""
        self._file.close()
