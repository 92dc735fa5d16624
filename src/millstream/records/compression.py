"""The codecs that pack the records of a batch.

Unpacking is bounded: output is made in small parts, as they are asked for, and given up as soon as
it passes the limit. So a bomb costs no more than what is taken of it. The one exception is raw
snappy, which is unpacked at once, to at most 22 times its size. What is not in the codec's format,
or ends too early, or goes on after its end, is an InvalidBatch.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import MessageTooLarge, UnsupportedCodec
from millstream.records.codecs import gzip, lz4, snappy, zstd

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_Function = TypeVar("_Function")

_SLICE_BYTES = 128 * 1024
_LZ4_BYTES = 8 << 20
"""Two of its largest blocks."""


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
    return b"".join(unpack(codec, data, limit_bytes))


def unpack(codec: int, data: ReadableBuffer, limit_bytes: int) -> Iterator[bytes]:
    """As `decompress`, in parts of at most about 128 KiB, each made when it is asked for."""
    return _find(_UNPACK, codec)(memoryview(data), limit_bytes)


def working_bytes(codec: int, data: ReadableBuffer) -> int:
    """About what it takes to unpack `data`, besides what comes of it."""
    if codec == Codec.ZSTD:
        return zstd.window_bytes(memoryview(data)) + 2 * _SLICE_BYTES
    return _LZ4_BYTES if codec == Codec.LZ4 else 2 * _SLICE_BYTES


def _slices(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    if len(view) > limit_bytes:
        raise MessageTooLarge(size_bytes=len(view), limit_bytes=limit_bytes)
    for start in range(0, len(view), _SLICE_BYTES):
        yield bytes(view[start : start + _SLICE_BYTES])


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
_UNPACK: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    Codec.NONE: _slices,
    Codec.GZIP: gzip.unpack,
    Codec.SNAPPY: snappy.unpack,
    Codec.LZ4: lz4.unpack,
    Codec.ZSTD: zstd.unpack,
}
