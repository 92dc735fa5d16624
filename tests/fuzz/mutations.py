"""Ways to spoil a request: each takes a whole frame, size and all, and gives bytes to send."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

# Counts and sizes that lie: huge, negative, off by one.
_LIES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\0\0\0",
    b"\0\x0f\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\0",
    b"\x7f\xff",
    b"\xff\xfe",
    b"\xff\xff\x03",
    b"\x81\0",
)


# Where a request's own fields begin, behind its size and a header with a short client id.
_BODY_AT = 18


def keep(chance: random.Random, frame: bytes) -> bytes:
    return frame


def flip_bits(chance: random.Random, frame: bytes) -> bytes:
    out = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 8))):
        out[_place(chance, frame)] ^= 1 << chance.randrange(8)
    return bytes(out)


def set_bytes(chance: random.Random, frame: bytes) -> bytes:
    out = bytearray(frame)
    for _ in range(chance.choice((1, 2, 4))):
        out[_place(chance, frame)] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    return bytes(out)


def write_a_lie(chance: random.Random, frame: bytes) -> bytes:
    """Put a size that cannot be over some bytes behind the header."""
    lie = chance.choice(_LIES)
    place = _place(chance, frame)
    return _sized(frame[4:place] + lie + frame[place + len(lie) :])


def cut(chance: random.Random, frame: bytes) -> bytes:
    """End the request early, and say so."""
    return _sized(frame[4 : _place(chance, frame)])


def insert(chance: random.Random, frame: bytes) -> bytes:
    place = _place(chance, frame)
    return _sized(frame[4:place] + chance.randbytes(chance.choice((1, 2, 16))) + frame[place:])


def repeat_a_part(chance: random.Random, frame: bytes) -> bytes:
    """Say some bytes many times: tags given twice, arrays in arrays."""
    start = _place(chance, frame)
    end = min(start + chance.choice((1, 2, 4, 30)), len(frame))
    part = frame[start:end] * chance.choice((2, 5, 100))
    return _sized(frame[4:start] + part + frame[end:])


def add_tags(chance: random.Random, frame: bytes) -> bytes:
    """End in tagged fields: unknown, given twice, in the wrong order, or too long."""
    tags = chance.choice(
        (
            b"\1\x20\3abc",
            b"\2\5\1a\5\1b",
            b"\2\6\1a\5\1b",
            b"\1\0\xff\xff\x03",
            b"\xff\xff\xff\xff\x0f",
            b"\1\xff\xff\xff\xff\x0f\0",
        )
    )
    return _sized(frame[4:-1] + tags + chance.choice((b"", b"\0", b"\0\0")))


def other_version(chance: random.Random, frame: bytes) -> bytes:
    """The same bytes, said to be of another API or version."""
    api_key, version = chance.randrange(-1, 80), chance.randrange(-1, 18)
    return frame[:4] + struct.pack(">hh", api_key, version) + frame[8:]


def noise(chance: random.Random, frame: bytes) -> bytes:
    """A frame of nothing that means anything, behind a header that may."""
    body = chance.randbytes(chance.choice((1, 10, 50, 300)))
    return _sized(frame[4:12] + body)


# Those after which a connection goes on, unless the request says something that cannot be.
MUTATIONS: tuple[Mutation, ...] = (
    *(keep,) * 12,
    *(flip_bits,) * 2,
    set_bytes,
    write_a_lie,
    cut,
    insert,
    repeat_a_part,
    add_tags,
    other_version,
    noise,
)


def random_bytes(chance: random.Random, frame: bytes) -> bytes:
    return chance.randbytes(chance.choice((1, 3, 4, 8, 60, 500)))


def truncate(chance: random.Random, frame: bytes) -> bytes:
    """The beginning of a request, of which the rest never comes."""
    return frame[: chance.randrange(1, len(frame))]


def lie_about_size(chance: random.Random, frame: bytes) -> bytes:
    size = chance.choice((0, 1, 7, 8, -1, -(2**31), 2**31 - 1, 100 << 20, 9 << 20, len(frame) + 5))
    return struct.pack(">i", size) + frame[4:]


# Those that leave a connection in the middle of something.
LAST_MUTATIONS: tuple[Mutation, ...] = (random_bytes, truncate, lie_about_size)


def _place(chance: random.Random, frame: bytes) -> int:
    """Somewhere in a frame, mostly behind the header, and never in the frame's own size."""
    first = _BODY_AT if len(frame) > _BODY_AT and chance.random() < 0.95 else 4
    return chance.randrange(first, len(frame))


def _sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
