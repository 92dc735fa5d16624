"""The primitives that compiled messages and headers share: varints, tagged fields, complaints.

Reading past the end raises IndexError or struct.error, and bad text UnicodeDecodeError: `decode`
turns them into MalformedMessage once for all. What a slice or a loop would swallow is checked here
and in the compiled code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from millstream.errors import MalformedMessage, TooManyElements

Buffer = bytes | bytearray | memoryview
ReadValue = Callable[[Buffer, int, int, int], tuple[Any, int, int]]

# What a reader runs into when bytes are missing or are not text.
UNREADABLE: Final = (IndexError, struct.error, UnicodeDecodeError)

_VARINT_BYTES: Final = 5
_SHORT_ARRAY: Final = 8
_MOST_TAGS: Final = 32
"""More than the protocol has: only those that nobody knows take time and are of no use."""


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_VARINTS: Final = tuple(_encode_varint(value) for value in range(0x100))


def varint(value: int) -> bytes:
    """An unsigned number, seven bits to a byte, least significant first."""
    return SHORT_VARINTS[value] if value < 0x100 else _encode_varint(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned 32-bit number at `position`, and the position after it."""
    value = shift = 0
    for _ in range(_VARINT_BYTES):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position
        shift += 7
    raise MalformedMessage("a number of more than 32 bits")


def read_long_size(buffer: Buffer, position: int) -> tuple[int, int]:
    """The compact size that starts at `position`, and the position after it."""
    raw, position = read_varint(buffer, position)
    return raw - 1, position


class PlainArray:
    """Reads and writes arrays of one fixed-width type, the short ones without parsing a format."""

    __slots__ = ("_code", "_layouts")

    def __init__(self, code: str) -> None:
        self._code = code
        self._layouts = tuple(struct.Struct(f">{count}{code}") for count in range(_SHORT_ARRAY))

    def read(self, buffer: Buffer, position: int, count: int) -> tuple[Any, ...]:
        return self._layout(count).unpack_from(buffer, position)

    def write(self, items: Sequence[Any]) -> bytes:
        return self._layout(len(items)).pack(*items)

    def _layout(self, count: int) -> struct.Struct:
        if count < _SHORT_ARRAY:
            return self._layouts[count]
        return struct.Struct(f">{count}{self._code}")


def bad_size(name: str, size: int, left: int) -> MalformedMessage:
    """What to raise when a size or a count cannot be."""
    return MalformedMessage(f"{name} has size {size} with {left} bytes left")


def too_many(name: str) -> TooManyElements:
    """What to raise when a message would have more elements than it may."""
    return TooManyElements(name)


def bad_presence(name: str, mark: int) -> MalformedMessage:
    """What to raise when a byte says neither that a struct follows nor that none does."""
    return MalformedMessage(f"{name} has presence {mark}, which is neither 1 nor -1")


def read_tags(
    value: Any,
    buffer: Buffer,
    position: int,
    end: int,
    known: Mapping[int, tuple[str, ReadValue]],
    left: int,
) -> tuple[int, int]:
    """Read a struct's tagged fields into `value`; the position after them, and `left` after them.

    Each counts as an element.
    """
    count, position = read_varint(buffer, position)
    left -= count
    if left < 0:
        raise too_many("tagged fields")
    unknown: dict[int, bytes] = {}
    previous = -1
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        stop = position + size
        if stop > end:
            raise bad_size(f"tag {tag}", size, end - position)
        if tag <= previous:
            raise MalformedMessage(f"tag {tag} comes after tag {previous}")
        if tag in known:
            name, read = known[tag]
            content, position, left = read(buffer, position, stop, left)
            setattr(value, name, content)
            if position != stop:
                raise MalformedMessage(f"{name} is not as long as its tag says")
        else:
            unknown[tag] = bytes(buffer[position:stop])
            position = stop
        previous = tag
    if unknown:
        value.unknown_tags = unknown
    return position, left


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """The position after the tagged fields at `position`, which nobody wants to know."""
    count, position = read_varint(buffer, position)
    if count > _MOST_TAGS:
        raise MalformedMessage(f"{count} tagged fields")
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position += size
        if position > end:
            raise bad_size("a tagged field", size, end - position + size)
    return position


def write_tags(append: Callable[[bytes], object], tags: Mapping[int, bytes]) -> None:
    """Append tagged fields in the order of their tags."""
    append(varint(len(tags)))
    for tag in sorted(tags):
        content = tags[tag]
        append(varint(tag) + varint(len(content)))
        append(content)
