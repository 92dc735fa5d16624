"""The codecs that pack the records of a batch.

Unpacking is bounded: output is made in small parts and given up as soon as it passes the limit,
so a bomb costs the limit and no more. What is not in the codec's format, or ends too early, or
goes on after its end, is an InvalidBatch.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import MessageTooLarge, UnsupportedCodec
from millstream.records.codecs import gzip, lz4, snappy, zstd

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_Function = TypeVar("_Function")


class Codec(IntEnum):
    """How a batch's records are packed: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: ReadableBuffer) -> bytes:
    """Pack `data`. Raises UnsupportedCodec."""
    return _find(_COMPRESS, codec)(memoryview(data))


def decompress(codec: int, data: ReadableBuffer, limit_bytes: int) -> bytes:
    """Unpack `data` to at most `limit_bytes`.

    Raises UnsupportedCodec, MessageTooLarge, or InvalidBatch for damaged input.
    """
    return _find(_DECOMPRESS, codec)(memoryview(data), limit_bytes)


def _copy(view: memoryview, limit_bytes: int) -> bytes:
    if len(view) > limit_bytes:
        raise MessageTooLarge(size_bytes=len(view), limit_bytes=limit_bytes)
    return bytes(view)


def _find(table: dict[int, _Function], codec: int) -> _Function:
    try:
        return table[codec]
    except KeyError:
        raise UnsupportedCodec(codec) from None


_COMPRESS: dict[int, Callable[[memoryview], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: snappy.compress,
    Codec.LZ4: lz4.compress,
    Codec.ZSTD: zstd.compress,
}
_DECOMPRESS: dict[int, Callable[[memoryview, int], bytes]] = {
    Codec.NONE: _copy,
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: snappy.decompress,
    Codec.LZ4: lz4.decompress,
    Codec.ZSTD: zstd.decompress,
}
