"""Reading primitives for the messages that are written by hand, where every microsecond counts.

Each function takes a view that ends where the message ends and a position, and returns a value and
the position after it. What cannot be right is a MalformedMessage, or an error of Python's own
where the bytes end too early, which `reading` turns into one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import MalformedMessage
from millstream.protocol.primitives import UNREADABLE, read_varint, varint

MOST_PLACES = 50_000
"""Topics and partitions in one request. Each takes a few bytes, and many times that in memory."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever cannot be read inside is a MalformedMessage."""
    try:
        yield
    except UNREADABLE as cause:
        raise MalformedMessage(f"{what}: {cause}") from cause


def read_count(view: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    """How many elements follow; no more than there are bytes. Null counts as none."""
    if flexible:
        count, position = read_varint(view, position)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(view, position)
        position += 4
    if not -1 <= count <= len(view) - position:
        raise MalformedMessage(f"an array of {count} in {len(view) - position} bytes")
    check_places(count)
    return max(count, 0), position


def check_places(count: int) -> None:
    """Raise MalformedMessage for a request that names more places than anyone needs."""
    if count > MOST_PLACES:
        raise MalformedMessage(f"more than {MOST_PLACES} topics and partitions")


def read_string(view: memoryview, position: int, *, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        size, position = read_varint(view, position)
        size -= 1
    else:
        (size,) = _INT16.unpack_from(view, position)
        position += 2
    if size < 0:
        return None, position
    end = position + size
    if end > len(view):
        raise MalformedMessage(f"a text of {size} bytes in {len(view) - position}")
    return str(view[position:end], "utf-8"), end


def read_name(view: memoryview, position: int, *, flexible: bool) -> tuple[str, int]:
    """A text that must be there."""
    name, position = read_string(view, position, flexible=flexible)
    if name is None:
        raise MalformedMessage("no text where there must be one")
    return name, position


def read_bytes_span(view: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    """Where bytes begin and end, without touching them. Null is an empty span."""
    if flexible:
        size, position = read_varint(view, position)
        size -= 1
    else:
        (size,) = _INT32.unpack_from(view, position)
        position += 4
    end = position + max(size, 0)
    if size < -1 or end > len(view):
        raise MalformedMessage(f"{size} bytes of records in {len(view) - position}")
    return position, end


def string(text: str, *, flexible: bool) -> bytes:
    encoded = text.encode()
    size = varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))
    return size + encoded


def count(number: int, *, flexible: bool) -> bytes:
    """How many elements follow."""
    return varint(number + 1) if flexible else _INT32.pack(number)
