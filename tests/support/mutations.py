"""Seeded damage to files: flips, cuts, lengths, parts moved about, two files grown together."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

_EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_PNG = b"\x89PNG\r\n\x1a\n"


def mutate(data: bytes, others: Sequence[bytes], seed: int) -> bytes:
    """Damages a file in one to four ways; the same seed gives the same bytes.

    Args:
        data: A valid file.
        others: Files to splice in.
        seed: Any integer.
    """
    dice = random.Random(seed)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        data = dice.choice(_WAYS)(data, others, dice)
    # Without right checksums nothing but the check of checksums would ever be reached.
    if data.startswith(_PNG) and dice.random() < 0.8:
        data = with_right_checksums(data)
    return data


def with_right_checksums(data: bytes) -> bytes:
    """A PNG whose chunks, as far as they can be told apart, have the checksums of their content."""
    parts, start = [data[:8]], 8
    while start + 12 <= len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4], "big")
        if end > len(data):
            break
        body = data[start + 4 : end - 4]
        parts.append(data[start : start + 4] + body + struct.pack(">I", zlib.crc32(body)))
        start = end
    return b"".join([*parts, data[start:]])


Way = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def _place(data: bytes, dice: random.Random) -> int:
    """A place in the file; headers are hit more often than their share of the bytes."""
    reach = len(data) if dice.random() < 0.5 else min(len(data), 200)
    return dice.randrange(max(1, reach))


def _flip_bits(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 20)) if data else 0):
        changed[_place(data, dice)] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _set_bytes(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 4)) if data else 0):
        changed[_place(data, dice)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
    return bytes(changed)


def _set_number(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """Writes an extreme or shifted number where a length, an offset or a count may be."""
    size = dice.choice((2, 4))
    order: str = dice.choice("<>")
    place = _place(data, dice)
    old = int.from_bytes(data[place : place + size], "little" if order == "<" else "big")
    value = dice.choice((*_EXTREMES, old + 1, old - 1, old * 2, len(data), dice.randrange(1 << 20)))
    packed = struct.pack(order + ("H" if size == 2 else "I"), value & ((1 << 8 * size) - 1))
    return data[:place] + packed + data[place + size :]


def _cut_end(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    return data[: _place(data, dice)]


def _drop_part(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    start = _place(data, dice)
    return data[:start] + data[start + dice.choice((1, 2, 4, 12, 64, 500)) :]


def _repeat_part(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    start = _place(data, dice)
    part = data[start : start + dice.choice((1, 4, 12, 64, 500))]
    return data[:start] + part * dice.choice((2, 2, 3, 50)) + data[start + len(part) :]


def _swap_parts(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    a, b = sorted((_place(data, dice), _place(data, dice)))
    c = min(len(data), 2 * b - a)
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _zero_part(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    start, length = _place(data, dice), dice.choice((2, 8, 64, 1000))
    part = data[start : start + length]
    return data[:start] + dice.choice((b"\0", b"\xff")) * len(part) + data[start + len(part) :]


def _splice(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """The head of one file and the tail of another."""
    other = dice.choice(others)
    return data[: _place(data, dice)] + other[_place(other, dice) :]


def _insert_other(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    other = dice.choice(others)
    start, place = _place(other, dice), _place(data, dice)
    return data[:place] + other[start : start + dice.choice((4, 64, 1000))] + data[place:]


_WAYS: tuple[Way, ...] = (
    _flip_bits,
    _flip_bits,
    _set_bytes,
    _set_number,
    _set_number,
    _cut_end,
    _drop_part,
    _repeat_part,
    _swap_parts,
    _zero_part,
    _splice,
    _insert_other,
)
