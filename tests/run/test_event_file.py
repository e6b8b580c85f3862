from __future__ import annotations

import struct
import time

import pytest

from expkit.run.event_file import EventFile, masked_crc32c


def unmasked(data: bytes) -> int:
    rotated = (masked_crc32c(data) - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        # RFC 3720, appendix B.4, and the usual check value.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_checksums_are_those_of_the_standard(data, crc):
    assert unmasked(data) == crc


def test_records_are_framed_by_length_and_checksums(tmp_path):
    file = EventFile(tmp_path)
    file.write(b"abc")
    data = file.path.read_bytes()  # on disk without a flush
    file.close()
    length, length_crc = struct.unpack("<QI", data[:12])
    assert (length, length_crc) == (3, masked_crc32c(data[:8]))
    assert data[12:15] == b"abc"
    assert struct.unpack("<I", data[15:]) == (masked_crc32c(b"abc"),)


def test_a_new_file_sorts_after_older_ones_though_the_clock_went_back(tmp_path, monkeypatch):
    made = [EventFile(tmp_path), EventFile(tmp_path)]
    yesterday = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: yesterday)
    made.append(EventFile(tmp_path))
    names = [file.path.name for file in made]
    for file in made:
        file.close()
    assert names == sorted(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
