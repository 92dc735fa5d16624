"""What is inside one batch: its records, whole, or as the slices that compaction moves.

Batches come from clients and from disks, so nothing in them is trusted: whatever the bytes are,
reading ends, stays within the limit on what may be unpacked, and raises only InvalidBatch,
MessageTooLarge or UnsupportedCodec. The checksum is not looked at again: see `batch.validate`.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.errors import InvalidBatch
from millstream.records.batch import HEADER_BYTES, parse_header
from millstream.records.compression import decompress
from millstream.records.record import Record, decode_record
from millstream.records.varint import INT32_BITS, INT64_BITS, read_rest, read_varint

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


RawRecord = tuple[int, int, int, int, bytes | None, bool]
"""Start, end, timestamp delta, offset delta, key, and whether there is a value.

A plain tuple, because compaction makes one per record.
"""


def records_of(buffer: ReadableBuffer, *, limit_bytes: int) -> Iterator[Record]:
    """The records of the one batch in `buffer`, unpacked to at most `limit_bytes`.

    Errors come as they are met: at the first record or at a later one.
    """
    header = parse_header(buffer)
    body = body_of(buffer, limit_bytes=limit_bytes)
    base_offset = header.base_offset
    base_timestamp_ms = header.base_timestamp_ms
    last_offset = header.last_offset
    append_time_ms = header.max_timestamp_ms if header.timestamp_type_append else None
    previous_offset = base_offset - 1
    position = 0
    for _ in range(header.records_count):
        try:
            record, position = decode_record(body, position, base_offset, base_timestamp_ms)
        except IndexError as cause:
            raise InvalidBatch("its records are cut short") from cause
        offset = record.offset
        if not previous_offset < offset <= last_offset:
            raise InvalidBatch(f"offset {offset} after {previous_offset}, up to {last_offset}")
        previous_offset = offset
        if append_time_ms is not None:
            record = _new(Record, (offset, append_time_ms, *record[2:]))
        yield record
    if position != len(body):
        raise InvalidBatch(f"{len(body) - position} bytes after its last record")


def body_of(buffer: ReadableBuffer, *, limit_bytes: int) -> bytes:
    """The bytes of a batch's records, unpacked to at most `limit_bytes`."""
    codec = parse_header(buffer).codec
    packed = memoryview(buffer)[HEADER_BYTES:]
    return decompress(codec, packed, limit_bytes)


def raw_records(  # noqa: C901, PLR0912, PLR0915 - one or two bytes of each number are inline
    body: bytes, count: int
) -> Iterator[RawRecord]:
    """Where each of the `count` records of a body lies, and what decides whether it stays.

    `body[start:end]` is the whole record. Values and headers are not looked at, because this
    bounds the speed of compaction.
    """
    size_bytes = len(body)
    end = 0
    previous = -1
    try:
        for _ in range(count):
            start = end
            position = start + 1
            raw = body[start]
            if raw > 0x7F:
                high = body[position]
                if high > 0x7F:
                    raw, position = read_rest(body, position, raw, INT32_BITS)
                else:
                    raw += (high << 7) - 0x80
                    position += 1
            end = position + (raw >> 1)
            if raw & 1 or end > size_bytes:
                raise InvalidBatch("a record whose length leads out of its batch")
            raw = body[position + 1]  # after its attributes
            position += 2
            if raw > 0x7F:
                high = body[position]
                if high > 0x7F:
                    raw, position = read_rest(body, position, raw, INT64_BITS)
                else:
                    raw += (high << 7) - 0x80
                    position += 1
            timestamp_delta_ms = (raw >> 1) ^ -(raw & 1)
            raw = body[position]
            position += 1
            if raw > 0x7F:
                high = body[position]
                if high > 0x7F:
                    raw, position = read_rest(body, position, raw, INT32_BITS)
                else:
                    raw += (high << 7) - 0x80
                    position += 1
            offset_delta = raw >> 1
            if raw & 1 or offset_delta <= previous:
                raise InvalidBatch(f"an offset delta that does not grow after {previous}")
            previous = offset_delta
            raw = body[position]
            position += 1
            if raw > 0x7F:
                raw, position = read_rest(body, position, raw, INT32_BITS)
            key = None
            if not raw & 1:
                key_from = position
                position += raw >> 1
                key = body[key_from:position]
            elif raw != 1:
                raise InvalidBatch("a key of negative length")
            raw = body[position]
            if raw & 1 and raw != 1:
                raw = _length_of_null(body, position)
            if position >= end:
                raise InvalidBatch("a key that leads out of its record")
            yield start, end, timestamp_delta_ms, offset_delta, key, raw != 1
    except IndexError as cause:
        raise InvalidBatch("its records are cut short") from cause
    if end != size_bytes:
        raise InvalidBatch(f"{size_bytes - end} bytes after its last record")


def _length_of_null(body: bytes, position: int) -> int:
    """The raw length of a null, which may be written in more bytes than it needs."""
    length, _ = read_varint(body, position)
    if length != -1:
        raise InvalidBatch("a value of negative length")
    return 1


_new = tuple.__new__
