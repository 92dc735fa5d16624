"""Making batches: from records, or from the raw slices of another batch that compaction keeps.

What is made here is what `batch.validate` accepts. A batch that cannot be expressed in the format
(offsets that do not grow, a timestamp of more than 64 bits) is an InvalidBatch: it came from a
caller's caller.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from millstream.errors import InvalidBatch, MessageTooLarge
from millstream.records.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    seal,
)
from millstream.records.compression import Codec, compress
from millstream.records.record import Record, encode_record

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_BATCH_BYTES = 2**31 - 1


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    last_offset_delta: int | None = None,
) -> bytearray:
    """A batch of `records`, whose offsets count from `base_offset` and may have gaps.

    `last_offset_delta` reaches past the last record where compaction has removed what followed.
    """
    if not records:
        raise InvalidBatch("no records")
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset
    base_timestamp_ms = records[0].timestamp_ms
    out = bytearray(HEADER_BYTES)
    previous_offset = base_offset - 1
    for record in records:
        if not previous_offset < record.offset <= base_offset + last_offset_delta:
            raise InvalidBatch(f"offset {record.offset} after {previous_offset}")
        previous_offset = record.offset
        encode_record(out, record, base_offset=base_offset, base_timestamp_ms=base_timestamp_ms)
    attributes = int(codec)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return _finish(out, header)


def rebuild(
    header: BatchHeader,
    body_parts: Iterable[ReadableBuffer],
    *,
    records_count: int,
    max_timestamp_ms: int,
    codec: Codec,
) -> bytearray:
    """The batch of `header` with only the records of `body_parts`, in their old places.

    The parts are slices of its body, each of one or more whole records. All else stays: offsets,
    producer, base timestamp, attributes. A batch with no records left keeps an offset and a
    producer's sequence alive, and is never packed.
    """
    if not records_count:
        codec = Codec.NONE
    out = bytearray(HEADER_BYTES)
    for part in body_parts:
        out += memoryview(part)
    return _finish(
        out,
        header._replace(
            attributes=header.attributes & ~CODEC_BITS | codec,
            max_timestamp_ms=max_timestamp_ms,
            records_count=records_count,
        ),
    )


def _finish(out: bytearray, header: BatchHeader) -> bytearray:
    """Pack the records behind the room for the header, then write the header and its checksum."""
    codec = header.codec
    if codec:
        with memoryview(out) as view:
            packed = compress(codec, view[HEADER_BYTES:])
        out[HEADER_BYTES:] = packed
    if len(out) > MAX_BATCH_BYTES:
        raise MessageTooLarge(size_bytes=len(out), limit_bytes=MAX_BATCH_BYTES)
    try:
        HEADER.pack_into(out, 0, header.base_offset, len(out) - LENGTH_PREFIX_BYTES, *header[2:])
    except struct.error as cause:
        raise InvalidBatch(f"a field that does not fit its header: {cause}") from cause
    seal(out)
    return out
