"""snappy, in both framings that Kafka clients use.

Raw: one snappy block, which begins with its unpacked size; librdkafka and Go clients write it.
Xerial: the stream of snappy-java, which Java and Python clients write: an 8-byte magic, two 4-byte
version numbers, then blocks, each behind its 4-byte size. The magic tells them apart: read as raw
snappy, it begins with a copy from before the beginning. We write xerial, which every client reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import cramjam

from millstream.errors import InvalidBatch, MessageTooLarge

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAGIC = b"\x82SNAPPY\x00"
VERSION = 1
COMPATIBLE_VERSION = 1
BLOCK_BYTES = 32 * 1024

_STREAM_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")

# A copy is the densest element: 64 bytes from 3. A block that claims more than that lies.
_MAX_EXPANSION = 22


def compress(view: memoryview) -> bytes:
    parts: list[ReadableBuffer] = [struct.pack(">8sii", MAGIC, VERSION, COMPATIBLE_VERSION)]
    for start in range(0, len(view), BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + BLOCK_BYTES])
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def unpack(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    if view[: len(MAGIC)] != MAGIC:
        yield bytes(_unpack_block(view, limit_bytes, limit_bytes))
        return
    room = limit_bytes
    position = _STREAM_HEADER_BYTES
    while position < len(view):
        # snappy-java starts again with a stream header where streams were put together.
        if view[position : position + len(MAGIC)] == MAGIC:
            position += _STREAM_HEADER_BYTES
            continue
        block_from = position + _BLOCK_SIZE.size
        if block_from > len(view):
            break
        (block_bytes,) = _BLOCK_SIZE.unpack_from(view, position)
        position = block_from + block_bytes
        if block_bytes < 0 or position > len(view):
            raise InvalidBatch(f"a snappy block of {block_bytes} bytes does not fit in its batch")
        block = _unpack_block(view[block_from:position], room, limit_bytes)
        room -= len(block)
        yield bytes(block)
    if position != len(view):
        raise InvalidBatch("its snappy data is cut short")


def _unpack_block(block: memoryview, room: int, limit_bytes: int) -> cramjam.Buffer:
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > len(block) * _MAX_EXPANSION:
            raise InvalidBatch(f"{len(block)} bytes of snappy that claim to hold {size_bytes}")
        if size_bytes > room:
            raise MessageTooLarge(
                size_bytes=limit_bytes - room + size_bytes, limit_bytes=limit_bytes
            )
        return cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as cause:
        raise InvalidBatch(f"damaged snappy data: {cause}") from cause
