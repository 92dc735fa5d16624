"""Batches of bare values: for doors whose messages have neither keys nor headers.

Invariant: a batch made here is, byte for byte, the one that `build` makes of records with these
values, one timestamp and no keys.
Cost: benchmarks/pylogstreams.py, which is a fraction of that of building record by record.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from millstream.errors import InvalidBatch, MessageTooLarge
from millstream.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    seal,
)
from millstream.records.batch_builder import MAX_BATCH_BYTES
from millstream.records.varint import write_varint

VALUE_OVERHEAD_BYTES = 20
"""At least what a record takes in a batch beside its value."""


def build_values(values: Sequence[bytes], *, timestamp_ms: int) -> bytearray:
    """A batch of values that nobody gave keys. Hot."""
    parts: list[bytes] = []
    add = parts.append
    for number, value in enumerate(values):
        place = _place(number)
        size = _number(len(value))
        # Place and size are all that varies in length, beside the value and the last byte.
        add(_number(len(place) + len(size) + len(value) + 1))
        add(place)
        add(size)
        add(value)
        add(_NO_HEADERS)
    out = bytearray(HEADER_BYTES) + b"".join(parts)
    if len(out) > MAX_BATCH_BYTES:
        raise MessageTooLarge(size_bytes=len(out), limit_bytes=MAX_BATCH_BYTES)
    count = len(values)
    if not count:
        raise InvalidBatch("no records")
    HEADER.pack_into(
        out,
        0,
        0,
        len(out) - LENGTH_PREFIX_BYTES,
        0,
        MAGIC,
        0,
        0,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        -1,
        -1,
        -1,
        count,
    )
    seal(out)
    return out


@lru_cache(maxsize=8192)
def _number(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@lru_cache(maxsize=8192)
def _place(number: int) -> bytes:
    """What comes before a value's size: attributes, distances in time and offset, and no key."""
    return b"\0\0" + _number(number) + b"\x01"


_NO_HEADERS = b"\0"
