"""gzip: one or more members after one another."""

from __future__ import annotations

import zlib

from millstream.errors import InvalidBatch, MessageTooLarge

_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

# zlib copies what follows a member out of its input, so many small members in a large input would
# cost its square; in slices this small they cost little.
_SLICE_BYTES = 16 * 1024


def compress(view: memoryview) -> bytes:
    return zlib.compress(view, wbits=_GZIP_WRAPPER)


def decompress(view: memoryview, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = limit_bytes + 1
    member = zlib.decompressobj(_GZIP_WRAPPER)
    for start in range(0, len(view), _SLICE_BYTES):
        pending: memoryview | bytes = view[start : start + _SLICE_BYTES]
        while pending:
            if member.eof:
                member = zlib.decompressobj(_GZIP_WRAPPER)
            try:
                part = member.decompress(pending, room)
            except zlib.error as cause:
                raise InvalidBatch(f"damaged gzip data: {cause}") from cause
            room -= len(part)
            if room == 0:
                raise MessageTooLarge(size_bytes=limit_bytes + 1, limit_bytes=limit_bytes)
            parts.append(part)
            pending = member.unused_data
    if not member.eof:
        raise InvalidBatch("its gzip data is cut short")
    return b"".join(parts)
