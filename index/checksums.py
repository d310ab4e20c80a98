"""Checksums of what lies in the database: SQLite has none, and hands out a flipped bit as it does any other."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

CHECKSUM_BYTES = 4


def signed(data: bytes) -> bytes:
    """The data with its CRC-32 behind it, little endian."""
    return data + zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")


def is_whole(data: bytes) -> bool:
    """Whether data that was signed is what it was."""
    end = len(data) - CHECKSUM_BYTES
    return zlib.crc32(memoryview(data)[:end]) == int.from_bytes(data[end:], "little")


def of_row(texts: Iterable[str], *numbers: float) -> int:
    """CRC-32 of texts, none of which has a NUL, and of numbers to their last bit, in their order."""
    return zlib.crc32(struct.pack(f"<{len(numbers)}d", *numbers), zlib.crc32("\0".join(texts).encode()))
