"""Batches of some kilobytes that unpack to hundreds of mebibytes."""

from __future__ import annotations

import zstandard

from millstream.records import Codec, Record
from millstream.records.batch import HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, seal
from millstream.records.record import encode_record

MIB = 1 << 20


def bomb(*, records: int, record_bytes: int) -> bytes:
    """A sound batch of records of zeros, packed with zstd, that takes no memory to make."""
    packer = zstandard.ZstdCompressor().compressobj()
    packed = bytearray()
    zeros = bytes(record_bytes)
    for number in range(records):
        plain = bytearray()
        encode_record(plain, Record(number, 1, None, zeros), base_offset=0, base_timestamp_ms=1)
        packed += packer.compress(plain)
    packed += packer.flush()
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(packed)
    fields = (0, length, 0, MAGIC, 0, int(Codec.ZSTD), records - 1, 1, 1, -1, -1, -1, records)
    batch = bytearray(HEADER.pack(*fields) + packed)
    seal(batch)
    return bytes(batch)
