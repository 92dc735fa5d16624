"""What is inside one batch: its records.

Batches come from clients and from disks, so nothing in them is trusted: whatever the bytes are,
reading ends, stays within the limit on what may be unpacked, and raises only InvalidBatch,
MessageTooLarge or UnsupportedCodec. The checksum is not looked at again: see `batch.validate`, and
for batches that were stored `storage.stored_records`.

Memory: a batch is unpacked in parts, as its records are asked for. At any time a record, a part and
what the codec looks back at are held, and nothing for records that nobody asks for.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.errors import InvalidBatch, MessageTooLarge
from millstream.records.batch import HEADER_BYTES, BatchHeader, parse_header
from millstream.records.compression import decompress, unpack
from millstream.records.record import Record, decode_record
from millstream.records.varint import INT32_BITS, INT64_BITS, read_rest, read_varint

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def records_of(
    buffer: ReadableBuffer,
    *,
    limit_bytes: int,
    record_limit_bytes: int | None = None,
    from_offset: int = 0,
) -> Iterator[Record]:
    """The records of the one batch in `buffer` from an offset on.

    It is unpacked to at most `limit_bytes`. A record of more than `record_limit_bytes`, if that is
    given, is never held in memory. Errors come as they are met: at the first record or later.
    """
    header = parse_header(buffer)
    parts = unpack(header.codec, memoryview(buffer)[HEADER_BYTES:], limit_bytes)
    if record_limit_bytes is None:
        record_limit_bytes = limit_bytes
    base_offset = header.base_offset
    base_timestamp_ms = header.base_timestamp_ms
    last_offset = header.last_offset
    append_time_ms = header.max_timestamp_ms if header.timestamp_type_append else None
    previous_offset = base_offset - 1
    body = next(parts, b"")
    position = left = 0
    if from_offset <= base_offset:
        left = header.records_count
    else:
        body, position, left = _without_records_before(
            body, parts, from_offset - base_offset, header.records_count
        )
    for _ in range(left):
        try:
            record, position = decode_record(body, position, base_offset, base_timestamp_ms)
        except (IndexError, InvalidBatch) as fault:
            # Most likely the rest of it is in the next part.
            body = _with_whole_record(body, position, parts, record_limit_bytes, fault)
            record, position = _decode_whole(body, header)
        offset = record.offset
        if not previous_offset < offset <= last_offset:
            raise InvalidBatch(f"offset {offset} after {previous_offset}, up to {last_offset}")
        previous_offset = offset
        if append_time_ms is not None:
            record = _new(Record, (offset, append_time_ms, *record[2:]))
        yield record
    rest_bytes = len(body) - position + sum(map(len, parts))
    if rest_bytes:
        raise InvalidBatch(f"{rest_bytes} bytes after its last record")


def body_of(buffer: ReadableBuffer, *, limit_bytes: int) -> bytes:
    """The bytes of a batch's records, unpacked to at most `limit_bytes`."""
    codec = parse_header(buffer).codec
    packed = memoryview(buffer)[HEADER_BYTES:]
    return decompress(codec, packed, limit_bytes)


def times_of(buffer: ReadableBuffer, *, limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch, none of which is held in memory."""
    header = parse_header(buffer)
    parts = unpack(header.codec, memoryview(buffer)[HEADER_BYTES:], limit_bytes)
    append_time_ms = header.max_timestamp_ms if header.timestamp_type_append else None
    body, position = next(parts, b""), 0
    for _ in range(header.records_count):
        body, position, outline = _outline_at(body, position, parts)
        end, timestamp_delta, offset_delta = outline
        timestamp_ms = header.base_timestamp_ms + timestamp_delta
        yield (
            header.base_offset + offset_delta,
            timestamp_ms if append_time_ms is None else append_time_ms,
        )
        body, position = _stepped_over(body, end, parts)


def _without_records_before(
    body: bytes, parts: Iterator[bytes], delta: int, count: int
) -> tuple[bytes, int, int]:
    """Step over the records in front of an offset, of which only that and the size are looked at.

    Returns what is left of the body, the position in it, and how many records are left.
    """
    position = 0
    while count:
        body, position, (end, _, offset_delta) = _outline_at(body, position, parts)
        if offset_delta >= delta:
            break
        body, position = _stepped_over(body, end, parts)
        count -= 1
    return body, position, count


def _outline_at(
    body: bytes, position: int, parts: Iterator[bytes]
) -> tuple[bytes, int, tuple[int, int, int]]:
    """The outline of the record at a position; and the body and position, if more was needed."""
    while True:
        try:
            return body, position, _outline(body, position)
        except IndexError:
            body, position = body[position:] + _next_part(parts), 0


def _stepped_over(body: bytes, end: int, parts: Iterator[bytes]) -> tuple[bytes, int]:
    """The body and the position in it, after a record that ends at `end`."""
    while end > len(body):
        end -= len(body)
        body = _next_part(parts)
    return body, end


def _next_part(parts: Iterator[bytes]) -> bytes:
    part = next(parts, None)
    if part is None:
        raise InvalidBatch(_CUT_SHORT)
    return part


def _outline(body: bytes, position: int) -> tuple[int, int, int]:
    """Where a record ends, and how far its time and offset are from those of the batch. Hot."""
    raw = body[position]
    position += 1
    if raw > _SEVEN_BITS:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    if raw & 1:
        raise InvalidBatch("a record of negative length")
    end = position + (raw >> 1)
    position += 1  # its attributes
    raw = body[position]
    position += 1
    if raw > _SEVEN_BITS:
        raw, position = read_rest(body, position, raw, INT64_BITS)
    timestamp_delta = (raw >> 1) ^ -(raw & 1)
    raw = body[position]
    position += 1
    if raw > _SEVEN_BITS:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    if position > end:
        raise InvalidBatch("a record without an offset")
    return end, timestamp_delta, (raw >> 1) ^ -(raw & 1)


def _with_whole_record(
    body: bytes, position: int, parts: Iterator[bytes], limit_bytes: int, fault: Exception
) -> bytes:
    """What is left from a position on, with as much more as the record there needs.

    Raises what was wrong with the record, if it is there in full.
    """
    pieces = [body[position:]]
    size_bytes = len(pieces[0])
    needed_bytes = _needed_bytes(pieces[0])
    while needed_bytes is None or size_bytes < needed_bytes:
        if needed_bytes is not None and needed_bytes > limit_bytes:
            raise MessageTooLarge(size_bytes=needed_bytes, limit_bytes=limit_bytes)
        part = _next_part(parts)
        pieces.append(part)
        size_bytes += len(part)
        if needed_bytes is None:
            pieces = [b"".join(pieces)]
            needed_bytes = _needed_bytes(pieces[0])
    if len(pieces) == 1 and position + needed_bytes <= len(body):
        raise fault if isinstance(fault, InvalidBatch) else InvalidBatch(_CUT_SHORT)
    return b"".join(pieces)


def _needed_bytes(piece: bytes) -> int | None:
    """The size of the record at the front of a piece; None when that is not there in full."""
    try:
        length, following = read_varint(piece, 0)
    except IndexError:
        return None
    return following + length


def _decode_whole(body: bytes, header: BatchHeader) -> tuple[Record, int]:
    """The record at the front of `body`, which holds all of it."""
    try:
        return decode_record(body, 0, header.base_offset, header.base_timestamp_ms)
    except IndexError as cause:
        raise InvalidBatch(_CUT_SHORT) from cause


_SEVEN_BITS = 0x7F
_CUT_SHORT = "its records are cut short"
_new = tuple.__new__
