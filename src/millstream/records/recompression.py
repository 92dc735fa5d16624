"""Batches packed in another way, for topics whose `compression.type` says how.

Only the records are packed anew: offsets, times and producer stay. Cost: that of the codecs, so
large batches are for a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.records.batch import validate_produced
from millstream.records.batch_builder import rebuild
from millstream.records.batch_reader import body_of
from millstream.records.compression import Codec

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def codec_of(compression_type: str) -> Codec:
    """The codec of a value of `compression.type` other than `producer`."""
    return _CODECS[compression_type]


def recompressed(batch: ReadableBuffer, codec: Codec, *, limit_bytes: int) -> bytearray | None:
    """A new batch packed by a codec; None where it is already.

    Raises InvalidBatch, UnsupportedCodec or MessageTooLarge.
    """
    header = validate_produced(batch)
    if header.codec == codec:
        return None
    return rebuild(
        header,
        [body_of(batch, limit_bytes=limit_bytes)],
        records_count=header.records_count,
        max_timestamp_ms=header.max_timestamp_ms,
        codec=codec,
    )
