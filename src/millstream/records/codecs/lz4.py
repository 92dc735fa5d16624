"""lz4, in its standard frame format.

Kafka's Java client reads only frames of independent blocks, so that is what is written; linked
blocks are read all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import lz4.frame

from millstream.errors import InvalidBatch, MessageTooLarge

_PART_BYTES = 64 * 1024


def compress(view: memoryview) -> bytes:
    packed: bytes = lz4.frame.compress(view, block_linked=False, store_size=False)
    return packed


def unpack(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    room = limit_bytes + 1
    context = lz4.frame.create_decompression_context()
    position = 0
    ended = False
    while position < len(view) or not ended:
        try:
            part, used_bytes, ended = lz4.frame.decompress_chunk(
                context, view[position:], max_length=min(room, _PART_BYTES)
            )
        except RuntimeError as cause:
            raise InvalidBatch(f"damaged lz4 data: {cause}") from cause
        if not part and not used_bytes:
            raise InvalidBatch("its lz4 data is cut short")
        position += used_bytes
        room -= len(part)
        if room == 0:
            raise MessageTooLarge(size_bytes=limit_bytes + 1, limit_bytes=limit_bytes)
        if part:
            yield part
