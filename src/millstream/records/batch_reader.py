"""What is inside one batch: its records.

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

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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


_new = tuple.__new__
