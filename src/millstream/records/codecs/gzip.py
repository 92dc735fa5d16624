"""gzip: one or more members after one another."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from millstream.errors import InvalidBatch, MessageTooLarge

_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

# zlib copies what follows a member out of its input, so many small members in a large input would
# cost its square; in slices this small they cost little.
_SLICE_BYTES = 16 * 1024
_PART_BYTES = 128 * 1024


def compress(view: memoryview) -> bytes:
    return zlib.compress(view, wbits=_GZIP_WRAPPER)


def unpack(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    room = limit_bytes + 1
    member = zlib.decompressobj(_GZIP_WRAPPER)
    for start in range(0, len(view), _SLICE_BYTES):
        pending: memoryview | bytes = view[start : start + _SLICE_BYTES]
        is_cut = False
        while pending or is_cut:
            if member.eof:
                member = zlib.decompressobj(_GZIP_WRAPPER)
            most_bytes = min(room, _PART_BYTES)
            try:
                part = member.decompress(pending, most_bytes)
            except zlib.error as cause:
                raise InvalidBatch(f"damaged gzip data: {cause}") from cause
            room -= len(part)
            if room == 0:
                raise MessageTooLarge(size_bytes=limit_bytes + 1, limit_bytes=limit_bytes)
            if part:
                yield part
            # A full part may have left output in the codec, also where no input is left.
            is_cut = len(part) == most_bytes and not member.eof
            pending = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise InvalidBatch("its gzip data is cut short")
