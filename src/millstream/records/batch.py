"""The header of a record batch (magic 2): parse it, check it, patch it in place.

All that the hot path ever does to a batch is here: it costs per batch, never per record, and
nothing is copied. What is inside a batch is for `batch_reader`; making one is for
`batch_builder`.

Invariant: the checksum covers everything from the attributes on, so offsets and leader epoch can
be patched into a batch without touching it, and nothing else can.
After a crash: a batch counts only when `validate` accepts it. The base offset is outside the
checksum, so whoever reads a log also checks that offsets grow.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import ChecksumMismatch, InvalidBatch, UnsupportedCodec
from millstream.records.checksum import crc32c
from millstream.records.compression import Codec

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""The base offset and the length itself, which `batch_length` does not count."""
MAGIC = 2

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21
"""The checksum covers the bytes from here to the end of the batch."""
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43
"""Its id, epoch and base sequence."""

CODEC_BITS = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

MIN_RECORD_BYTES = 7
"""A record with no key, value or headers: seven fields of one byte each."""

_SEQUENCES = 2**31
_CODECS = tuple(Codec)
_MAX_CODEC = len(_CODECS) - 1


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, in the order they are stored."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header and records."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCodec, which cannot happen once the batch is validated."""
        bits = self.attributes & CODEC_BITS
        if bits > _MAX_CODEC:
            raise UnsupportedCodec(bits)
        return _CODECS[bits]

    @property
    def timestamp_type_append(self) -> bool:
        """Every record carries the time of its append, `max_timestamp_ms`."""
        return self.attributes & APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2**31 - 1 comes 0. -1 where there is none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


def parse_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Checks only that it is all there; see `validate`."""
    try:
        return _new(BatchHeader, _unpack(buffer, position))
    except struct.error as cause:
        raise InvalidBatch(f"no {HEADER_BYTES} bytes of header at byte {position}") from cause


def validate(buffer: ReadableBuffer) -> BatchHeader:
    """The header of the one batch that fills `buffer`, once length, fields and checksum hold.

    Gaps are fine: compaction leaves them. Raises InvalidBatch or UnsupportedCodec.
    """
    return _new(BatchHeader, _checked_fields(buffer))


def validate_produced(buffer: ReadableBuffer) -> BatchHeader:
    """As `validate`, for a batch that is new to the log: at least one record, and no gaps.

    Whether its sender may write a control batch is for the caller to judge.
    """
    fields = _checked_fields(buffer)
    _, length, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, count = fields
    if count < 1 or count != delta + 1:
        raise InvalidBatch(f"{count} records with a last offset delta of {delta} in a new batch")
    if not attributes & CODEC_BITS and count * MIN_RECORD_BYTES > length - _FIXED_BYTES:
        raise InvalidBatch(f"{count} records cannot fit in {length - _FIXED_BYTES} bytes")
    if (
        producer_id >= 0
        and (epoch < 0 or sequence < 0)
        and not attributes & CONTROL_BIT
        # The broker itself writes without sequences, as part of somebody's transaction.
        and (epoch < 0 or not attributes & TRANSACTIONAL_BIT)
    ):
        raise InvalidBatch(f"producer {producer_id} with epoch {epoch} and sequence {sequence}")
    return _new(BatchHeader, fields)


def assign_offset(
    buffer: WriteableBuffer, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Patch a batch's place in the log into it. The checksum stays as it is."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: WriteableBuffer, timestamp_ms: int) -> None:
    """Give every record of the one batch in `buffer` the time of its append."""
    view = memoryview(buffer)
    (attributes,) = _ATTRIBUTES.unpack_from(view, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_AT, attributes | APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_AT, timestamp_ms)
    seal(view)


def seal(buffer: WriteableBuffer) -> None:
    """Compute the checksum of the one batch in `buffer` and write it."""
    view = memoryview(buffer)
    _CRC.pack_into(view, CRC_AT, crc32c(view[CRC_FROM:]))


def _checked_fields(buffer: ReadableBuffer) -> _Fields:
    """Hot: once per batch that is produced or recovered, a microsecond for a small one."""
    view = memoryview(buffer)
    size_bytes = len(view)
    if size_bytes < HEADER_BYTES:
        raise InvalidBatch(f"{size_bytes} bytes cannot hold a header of {HEADER_BYTES}")
    fields: _Fields = _unpack(view)
    _, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = fields
    if magic != MAGIC:
        raise InvalidBatch(f"magic {magic} where only {MAGIC} is supported")
    if length + LENGTH_PREFIX_BYTES != size_bytes:
        raise InvalidBatch(
            f"its length says {length + LENGTH_PREFIX_BYTES} bytes, there are {size_bytes}"
        )
    if crc32c(view[CRC_FROM:]) != crc:
        raise ChecksumMismatch(f"the checksum is not the stored {crc:#010x}")
    if attributes & CODEC_BITS > _MAX_CODEC:
        raise UnsupportedCodec(attributes & CODEC_BITS)
    if delta < 0 or not 0 <= count <= delta + 1:
        raise InvalidBatch(f"{count} records with a last offset delta of {delta}")
    return fields


_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_FIXED_BYTES = HEADER_BYTES - LENGTH_PREFIX_BYTES
_unpack = HEADER.unpack_from
_new = tuple.__new__  # faster than BatchHeader._make, which checks the size once more
_Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
