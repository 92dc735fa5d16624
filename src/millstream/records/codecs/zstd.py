"""zstd: one or more frames after one another, with or without their unpacked size.

The library's bounded reader takes input that ends too early for input that ends, so the frames
are first walked from block to block, without unpacking anything, to see that they are whole.
"""

from __future__ import annotations

import threading

import zstandard

from millstream.errors import InvalidBatch, MessageTooLarge

_PART_BYTES = 128 * 1024
# What the highest level uses, and the most that other readers take.
_MAX_WINDOW_BYTES = 128 * 1024 * 1024

_MAX_HEADER_BYTES = 18
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_HEADER_BYTES = 8
_BLOCK_HEADER_BYTES = 3
_RUN_LENGTH_BLOCK = 1
_CHECKSUM_BYTES = 4


def compress(view: memoryview) -> bytes:
    return _contexts.packer.compress(view)


def decompress(view: memoryview, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = limit_bytes + 1
    try:
        _check_whole(view)
        reader = _contexts.unpacker.stream_reader(view, read_across_frames=True)
        while part := reader.read(min(room, _PART_BYTES)):
            room -= len(part)
            if room == 0:
                raise MessageTooLarge(size_bytes=limit_bytes + 1, limit_bytes=limit_bytes)
            parts.append(part)
    except zstandard.ZstdError as cause:
        raise InvalidBatch(f"damaged zstd data: {cause}") from cause
    return b"".join(parts)


def _check_whole(view: memoryview) -> None:
    position = 0
    while True:
        position = _frame_end(view, position)
        if position > len(view):
            raise InvalidBatch("its zstd data is cut short")
        if position == len(view):
            return


def _frame_end(view: memoryview, position: int) -> int:
    """Where the frame at `position` ends; past the end of `view` when it is not all there."""
    if _number(view, position, 4) & ~0xF == _SKIPPABLE_MAGIC:
        return position + _SKIPPABLE_HEADER_BYTES + _number(view, position + 4, 4)
    frame = view[position : position + _MAX_HEADER_BYTES]
    has_checksum = zstandard.get_frame_parameters(frame).has_checksum
    position += zstandard.frame_header_size(frame)
    last = False
    while not last:
        block = _number(view, position, _BLOCK_HEADER_BYTES)
        last = bool(block & 1)
        packed_bytes = 1 if block >> 1 & 3 == _RUN_LENGTH_BLOCK else block >> 3
        position += _BLOCK_HEADER_BYTES + packed_bytes
    return position + _CHECKSUM_BYTES if has_checksum else position


def _number(view: memoryview, position: int, size_bytes: int) -> int:
    if position + size_bytes > len(view):
        raise InvalidBatch("its zstd data is cut short")
    return int.from_bytes(view[position : position + size_bytes], "little")


class _Contexts(threading.local):
    """The library's working memory: costlier to make than a small batch to unpack.

    For one thread at a time, so each has its own.
    """

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor()
        self.unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)


_contexts = _Contexts()
