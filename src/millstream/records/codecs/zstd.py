"""zstd: one or more frames after one another, with or without their unpacked size.

The library's bounded reader takes input that ends too early for input that ends, so the frames
are first walked from block to block, without unpacking anything, to see that they are whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import zstandard

from millstream.errors import InvalidBatch, MessageTooLarge

_PART_BYTES = 128 * 1024
# What the highest level uses, and the most that other readers take.
_MAX_WINDOW_BYTES = 128 * 1024 * 1024
# A context keeps the widest window that it had; wider ones than usual are not kept.
_KEPT_WINDOW_BYTES = 8 * 1024 * 1024
_KEPT_UNPACKERS = 2

_MAX_HEADER_BYTES = 18
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_HEADER_BYTES = 8
_BLOCK_HEADER_BYTES = 3
_RUN_LENGTH_BLOCK = 1
_CHECKSUM_BYTES = 4


def compress(view: memoryview) -> bytes:
    return _contexts.packer.compress(view)


def unpack(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    room = limit_bytes + 1
    unpacker = _contexts.take()
    window_bytes = 0
    try:
        window_bytes = _check_whole(view)
        reader = unpacker.stream_reader(view, read_across_frames=True)
        while part := reader.read(min(room, _PART_BYTES)):
            room -= len(part)
            if room == 0:
                raise MessageTooLarge(size_bytes=limit_bytes + 1, limit_bytes=limit_bytes)
            yield part
    except zstandard.ZstdError as cause:
        raise InvalidBatch(f"damaged zstd data: {cause}") from cause
    finally:
        if window_bytes <= _KEPT_WINDOW_BYTES:
            _contexts.give_back(unpacker)


def window_bytes(view: memoryview) -> int:
    """How far the first frame looks back. Whether there is one is found out by unpacking it."""
    try:
        return zstandard.get_frame_parameters(view[:_MAX_HEADER_BYTES]).window_size
    except zstandard.ZstdError:
        return 0


def _check_whole(view: memoryview) -> int:
    """The size of the widest window of all frames, once they are known to be whole."""
    position = 0
    widest_bytes = 0
    while True:
        window_bytes, position = _frame_end(view, position)
        widest_bytes = max(widest_bytes, window_bytes)
        if position > len(view):
            raise InvalidBatch("its zstd data is cut short")
        if position == len(view):
            return widest_bytes


def _frame_end(view: memoryview, position: int) -> tuple[int, int]:
    """The window of the frame at `position`, and where that frame ends.

    Past the end of `view` when it is not all there.
    """
    if _number(view, position, 4) & ~0xF == _SKIPPABLE_MAGIC:
        return 0, position + _SKIPPABLE_HEADER_BYTES + _number(view, position + 4, 4)
    frame = view[position : position + _MAX_HEADER_BYTES]
    parameters = zstandard.get_frame_parameters(frame)
    position += zstandard.frame_header_size(frame)
    last = False
    while not last:
        block = _number(view, position, _BLOCK_HEADER_BYTES)
        last = bool(block & 1)
        packed_bytes = 1 if block >> 1 & 3 == _RUN_LENGTH_BLOCK else block >> 3
        position += _BLOCK_HEADER_BYTES + packed_bytes
    if parameters.has_checksum:
        position += _CHECKSUM_BYTES
    return parameters.window_size, position


def _number(view: memoryview, position: int, size_bytes: int) -> int:
    if position + size_bytes > len(view):
        raise InvalidBatch("its zstd data is cut short")
    return int.from_bytes(view[position : position + size_bytes], "little")


class _Contexts(threading.local):
    """The library's working memory: costlier to make than a small batch to unpack.

    For one thread at a time, so each has its own; and for one batch at a time, so whoever unpacks
    takes one, and gives it back at the end.
    """

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor()
        self._unpackers: list[zstandard.ZstdDecompressor] = []

    def take(self) -> zstandard.ZstdDecompressor:
        if self._unpackers:
            return self._unpackers.pop()
        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)

    def give_back(self, unpacker: zstandard.ZstdDecompressor) -> None:
        if len(self._unpackers) < _KEPT_UNPACKERS:
            self._unpackers.append(unpacker)


_contexts = _Contexts()
