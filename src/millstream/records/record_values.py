"""The values of a batch's records, and nothing else of them: for who prints a topic.

Keys and headers are stepped over, so that it takes a third of the time of `records_of`.
Whatever the bytes are, reading ends and raises only InvalidBatch, MessageTooLarge or
UnsupportedCodec.
Format: docs/formats/record_batch.md. Cost: benchmarks/command_line.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidBatch
from millstream.records.batch import parse_header
from millstream.records.batch_reader import body_of
from millstream.records.varint import INT32_BITS, INT64_BITS, read_rest

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def values_of(buffer: ReadableBuffer, *, limit_bytes: int) -> list[bytes | None]:
    """The value of each record of the one batch in `buffer`, in order."""
    count = parse_header(buffer).records_count
    body = body_of(buffer, limit_bytes=limit_bytes)
    try:
        values, position = _values(body, count)
    except IndexError as cause:
        raise InvalidBatch("its records are cut short") from cause
    if position != len(body):
        raise InvalidBatch(f"{len(body) - position} bytes after its last record")
    return values


def _values(body: bytes, count: int) -> tuple[list[bytes | None], int]:
    """Hot: one byte of each number is inline, as most have no more."""
    values: list[bytes | None] = []
    add = values.append
    position = 0
    for _ in range(count):
        raw = body[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_rest(body, position, raw, INT32_BITS)
        end = position + (raw >> 1)
        # Attributes are one byte; then the distances in time and offset, and the key.
        raw = body[position + 1]
        position += 2
        if raw > 0x7F:
            _, position = read_rest(body, position, raw, INT64_BITS)
        raw = body[position]
        position += 1
        if raw > 0x7F:
            _, position = read_rest(body, position, raw, INT32_BITS)
        raw = body[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_rest(body, position, raw, INT32_BITS)
        if not raw & 1:
            position += raw >> 1
        raw = body[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_rest(body, position, raw, INT32_BITS)
        if raw & 1:
            add(None)
        else:
            value_from, position = position, position + (raw >> 1)
            add(body[value_from:position])
        # Only headers are left, of which at least the count is there.
        if not position < end <= len(body):
            raise InvalidBatch(f"a record that ends at byte {end}, and its value at {position}")
        position = end
    return values, position
