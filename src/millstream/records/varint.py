"""Integers of variable size: seven bits to a byte, least significant first, zig-zag for the sign.

Zig-zag maps 0, -1, 1, -2, ... to 0, 1, 2, 3, ..., so small numbers of either sign take one byte.
A "raw" number is one before its sign is restored: odd means negative, and `raw >> 1` is the
value of an even one. Readers of hot loops take the one-byte case themselves and call here for
the rest.

Reading past the end raises IndexError, which the caller turns into InvalidBatch once for all.
"""

from __future__ import annotations

from millstream.errors import InvalidBatch

INT32_BITS = 32
INT64_BITS = 64


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """The 32-bit number at `position`, and the position after it."""
    raw = buffer[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(buffer, position, raw, INT32_BITS)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: bytes, position: int) -> tuple[int, int]:
    """The 64-bit number at `position`, and the position after it."""
    raw = buffer[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(buffer, position, raw, INT64_BITS)
    return (raw >> 1) ^ -(raw & 1), position


def read_rest(buffer: bytes, position: int, first: int, bits: int) -> tuple[int, int]:
    """The raw number whose `first` byte said that more follow, and the position after it."""
    byte = buffer[position]
    raw = first + (byte << 7) - 0x80
    shift = 14
    while byte > 0x7F:
        if shift >= bits:
            raise InvalidBatch(f"a number of more than {bits} bits")
        position += 1
        byte = buffer[position]
        raw += (byte << shift) - (0x80 << (shift - 7))
        shift += 7
    if raw >> bits:
        raise InvalidBatch(f"a number of more than {bits} bits")
    return raw, position + 1


def write_varint(out: bytearray, value: int) -> None:
    """Append a 32-bit number."""
    _write_raw(out, value << 1 if value >= 0 else ~(value << 1), INT32_BITS)


def write_varlong(out: bytearray, value: int) -> None:
    """Append a 64-bit number."""
    _write_raw(out, value << 1 if value >= 0 else ~(value << 1), INT64_BITS)


def _write_raw(out: bytearray, raw: int, bits: int) -> None:
    if raw >> bits:
        raise InvalidBatch(f"a number does not fit in {bits} bits")
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
